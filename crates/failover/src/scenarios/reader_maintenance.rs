//! Drains a reader, stops it and starts it again.

use std::thread;

use weir_lab::goals::GoalChecks;
use weir_lab::servers::RunningWeir;
use weir_lab::{Error, rows};
use weir_testkit::{Account, Node};

use crate::peer::PeerKind;
use crate::scenarios::Seen;
use crate::stage::Stage;

/// Large results that are on their way when the reader is drained, over all readers.
const LARGE_RESULTS: usize = 4;
/// The rows of each: some seconds' worth.
const LARGE_ROWS: usize = 300_000;
/// The longest that a drained reader may keep a connection busy.
const DRAIN_TIMEOUT_S: u64 = 60;

pub(super) fn run(stage: &Stage<'_>) -> Result<Seen, Error> {
    let (peer, mut run) = stage.begin(PeerKind::Weir)?;
    let weir = peer.weir().ok_or_else(|| Error::Impossible("no Weir".to_owned()))?;
    let cluster = stage.cluster()?;
    let writer = weir.writer()?;
    let reader = cluster.nodes().iter().rfind(|node| Some(node.addr()) != writer);
    let reader = reader.ok_or_else(|| Error::Impossible("no reader".to_owned()))?;
    let address = reader.addr().to_string();

    let target = weir.target();
    let large: Vec<_> =
        (0..LARGE_RESULTS).map(|_| thread::spawn(move || large_result(target.reads))).collect();
    stage.stop.sleep(std::time::Duration::from_millis(200))?;
    let drained = run.mark(format!("drain {}", reader.name()));
    order(weir, &["drain", &address])?;
    stage
        .stop
        .wait("the end of the work of a drained reader", DRAIN_TIMEOUT_S, || is_idle(weir, &address))?;
    let idle = run.mark(format!("{} is idle: SIGTERM", reader.name()));
    Node::stop(reader)?;
    stage.stop.sleep(stage.scale.settle)?;
    run.mark(format!("start {}", reader.name()));
    cluster.start_node(reader.index())?;
    stage.servers()?.number(reader.index())?;
    run.mark(format!("undrain {}", reader.name()));
    order(weir, &["undrain", &address])?;
    stage
        .stop
        .wait("the reader reads again", DRAIN_TIMEOUT_S, || Ok(weir.readers()?.contains(&reader.addr())))?;
    stage.stop.sleep(stage.scale.settle)?;
    let mut cut = Vec::new();
    for result in large {
        cut.extend(
            result.join().unwrap_or_else(|_| Err("a reader of a large result panicked".to_owned())).err(),
        );
    }
    let finished = stage.finish(run)?;
    let mut figures = finished.figures();
    (figures.group_ms, figures.own_share_ms) = (None, None);

    let mut goals = GoalChecks::new(stage.args.smoke);
    goals.undisturbed(&figures);
    goals.must(
        format!("{LARGE_RESULTS} large results end cleanly"),
        (LARGE_RESULTS - cut.len()).to_string(),
        cut.is_empty(),
    );
    let mut notes = vec![format!("The reader was idle {:.0} ms after the drain.", idle.ms_since(drained))];
    notes.extend(cut);
    notes.extend(finished.audit.named);
    Ok(Seen { variant: String::new(), recording: finished.recording, figures, checks: goals.checks, notes })
}

/// Reads many rows through the proxy, and counts them.
fn large_result(server: std::net::SocketAddrV4) -> Result<(), String> {
    let told = |error: Error| error.to_string();
    let mut connection = rows::connect(server, &Account::APP.into()).map_err(told)?;
    let sql =
        format!("SELECT a.number, REPEAT('x', 100) FROM numbers a, numbers b, numbers c LIMIT {LARGE_ROWS}");
    let result = connection.query(&sql).map_err(|error| format!("A large result: {error}"))?;
    match result.rows.len() {
        LARGE_ROWS => Ok(()),
        rows => Err(format!("A large result has {rows} rows of {LARGE_ROWS}")),
    }
}

pub(super) fn order(weir: &RunningWeir, arguments: &[&str]) -> Result<(), Error> {
    let told = weir.tell(arguments)?;
    // A drain names the Weir of an earlier scenario, which was killed, as one that may have sessions there.
    let is_free = arguments[0] == "drain" && told.text.contains("nothing runs there any more");
    match told.succeeded || is_free {
        true => Ok(()),
        false => Err(Error::Answer { what: format!("weir {}", arguments.join(" ")), answer: told.text }),
    }
}

/// Whether no connection to a server is lent to a session.
fn is_idle(weir: &RunningWeir, address: &str) -> Result<bool, Error> {
    let status = weir.status()?;
    let servers = status["servers"].as_array().cloned().unwrap_or_default();
    let used = servers.iter().filter(|server| server["server"].as_str() == Some(address));
    Ok(used.map(|server| server["used"].as_u64().unwrap_or(0)).sum::<u64>() == 0)
}
