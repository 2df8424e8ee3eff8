//! Updates a row by id on one connection and looks for it on another: the stale-read test of the articles.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use weir_lab::goals::GoalChecks;
use weir_lab::report::percentile;
use weir_lab::{Error, Latencies, Stop};
use weir_testkit::Account;

use crate::args::Part;
use crate::client::{Client, Refused};
use crate::history::Acknowledged;
use crate::place::Level;
use crate::report::Finding;
use crate::session::{Counters, Shared, make_sql};
use crate::stage::{SCHEMA, Stage, progress};
use crate::weirs::{self, Variant};
use crate::writers::write;

/// Rows that are updated in turn.
const ROWS: u64 = 100;
/// A row that is not there after so long is lost to the test.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the test was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Through {
    /// Update at the writer, look at another server.
    Nothing,
    /// Both through Weir, with the user of a level.
    Weir(Level),
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Lags {
    through: Through,
    updates: usize,
    /// Updates that the first look has not shown.
    stale: usize,
    /// From the acknowledgement to the end of the look that has shown it, of the stale ones.
    avg_ms: Option<f64>,
    min_ms: Option<f64>,
    max_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// What half of the COMMITs do not exceed, ms: nodes at a distance show in it.
    commit_ms: Option<f64>,
}

/// Direct, and at each level.
pub(crate) fn measure(stage: &Stage<'_>) -> Result<Finding, Error> {
    stage.servers.repair()?;
    let weir = weirs::start(stage, Variant::Plain)?;
    let writer = weir.writer()?.ok_or_else(|| Error::Impossible("there is no writer".to_owned()))?;
    let reader = weir.readers()?.last().copied();
    let reader = reader.ok_or_else(|| Error::Impossible("there is no reader".to_owned()))?;
    let writers = stage.scale.price_sessions as usize;
    let shared = Shared {
        level: Level::Eventual,
        counters: Counters { sessions: 0, writers, has_beside: false },
        acknowledged: Acknowledged::new(writers),
        checks: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let rows: Vec<String> = (0..ROWS).map(|id| format!("({id}, 0)")).collect();
    let table = format!(
        "DROP TABLE IF EXISTS article; CREATE TABLE article (id INT PRIMARY KEY, v BIGINT NOT NULL); \
         INSERT INTO article VALUES {}",
        rows.join(", ")
    );
    stage.make(writer, &format!("{}; {table}", make_sql(writers)))?;
    let account = Level::Eventual.account();
    let lags = thread::scope(|scope| {
        for counter in 0..writers {
            let shared = &shared;
            let address = weir.address();
            scope.spawn(move || write(shared, account, counter, writers, || Ok(address)));
        }
        let mut all = vec![one(stage, Through::Nothing, [writer, reader])];
        for level in Level::ALL {
            all.push(one(stage, Through::Weir(level), [weir.address(); 2]));
        }
        shared.is_over.store(true, Ordering::Relaxed);
        all.into_iter().collect::<Result<Vec<_>, Error>>()
    })?;
    Ok(finding(stage, lags))
}

/// Updates at the first address, looks at the second.
fn one(stage: &Stage<'_>, through: Through, addresses: [SocketAddrV4; 2]) -> Result<Lags, Error> {
    progress(&format!("{}: {}", stage.place, words(through)));
    let account = match through {
        Through::Nothing => Level::Eventual.account(),
        Through::Weir(level) => level.account(),
    };
    let answer = |error: Refused| Error::Answer { what: words(through), answer: error.to_string() };
    updates(addresses, account, stage.scale.updates, through, &stage.stop)?.map_err(answer)
}

fn updates(
    [writes, reads]: [SocketAddrV4; 2],
    account: Account,
    count: u32,
    through: Through,
    stop: &Stop,
) -> Result<Result<Lags, Refused>, Error> {
    let clients = Client::open(writes, account, SCHEMA)
        .and_then(|writer| Ok((writer, Client::open(reads, account, SCHEMA)?)));
    let (mut writer, mut reader) = match clients {
        Ok(clients) => clients,
        Err(refused) => return Ok(Err(refused)),
    };
    let (mut lags_ms, mut commits) = (Vec::new(), Latencies::default());
    for number in 0..u64::from(count) {
        stop.check()?;
        match update(&mut writer, &mut reader, number % ROWS, &mut commits) {
            Ok(lag_ms) => lags_ms.extend(lag_ms),
            Err(refused) => return Ok(Err(refused)),
        }
    }
    Ok(Ok(Lags::new(through, count as usize, lags_ms, &commits)))
}

/// The time until the update was seen, ms; `None` if the first look has shown it.
fn update(
    writer: &mut Client,
    reader: &mut Client,
    id: u64,
    commits: &mut Latencies,
) -> Result<Option<f64>, Refused> {
    let read = format!("SELECT v, n.name + 0 FROM article a, failover.node n WHERE a.id = {id}");
    // Of the writer's own: whoever looks has to see one more.
    writer.run("BEGIN")?;
    let before = writer.read(&read)?.value;
    writer.run(&format!("UPDATE article SET v = {} WHERE id = {id}", before + 1))?;
    let sent = Instant::now();
    writer.run("COMMIT")?;
    let acknowledged = Instant::now();
    commits.record(acknowledged - sent);
    let mut is_first = true;
    loop {
        let found = reader.read(&read)?;
        let lag = acknowledged.elapsed();
        if found.value > before {
            return Ok((!is_first).then_some(lag.as_secs_f64() * 1000.0));
        }
        if lag > PATIENCE {
            let text = format!("row {id} is not there after {} s", PATIENCE.as_secs());
            return Err(Refused { code: 0, text });
        }
        is_first = false;
    }
}

impl Lags {
    fn new(through: Through, updates: usize, mut lags_ms: Vec<f64>, commits: &Latencies) -> Lags {
        lags_ms.sort_by(f64::total_cmp);
        let stale = lags_ms.len();
        let avg_ms = (stale > 0).then(|| lags_ms.iter().sum::<f64>() / stale as f64);
        let (min_ms, max_ms) = (lags_ms.first().copied(), lags_ms.last().copied());
        let p99_ms = percentile(&lags_ms, 99.0);
        let commit_ms = commits.percentile_ms(50.0);
        Lags { through, updates, stale, avg_ms, min_ms, max_ms, p99_ms, commit_ms }
    }
}

fn words(through: Through) -> String {
    match through {
        Through::Nothing => "straight at two servers".to_owned(),
        Through::Weir(level) => format!("Weir, {level}"),
    }
}

fn finding(stage: &Stage<'_>, all: Vec<Lags>) -> Finding {
    let mut goals = GoalChecks::new(stage.args.smoke);
    let headings =
        ["through", "updates", "stale", "stale %", "lag avg ms", "min", "max", "p99", "commit p50 ms"];
    let mut table = vec![headings.map(str::to_owned).to_vec()];
    for lags in &all {
        let Lags { through, updates, stale, .. } = lags;
        let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
        let percent = 100.0 * *stale as f64 / (*updates).max(1) as f64;
        let mut cells =
            vec![words(*through), updates.to_string(), stale.to_string(), format!("{percent:.2}")];
        cells.extend([lags.avg_ms, lags.min_ms, lags.max_ms, lags.p99_ms, lags.commit_ms].map(ms));
        table.push(cells);
        if let Through::Weir(level) = through
            && level.is_global()
        {
            goals.none(&format!("stale reads at {level}"), *stale);
        }
    }
    Finding {
        part: Part::Article,
        place: stage.place,
        remark: format!(
            "Beside it {} sessions write through Weir. Another session's update: eventual and session may miss it. \
             The lag is that of the stale ones, from the answer to COMMIT to the answer that has the update.",
            stage.scale.price_sessions
        ),
        left_columns: 1,
        table,
        figures: json!(all),
        checks: goals.checks,
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lags_are_those_of_stale_reads_alone() {
        let lags = Lags::new(Through::Nothing, 10, vec![3.0, 1.0, 2.0], &Latencies::default());
        assert_eq!((lags.stale, lags.avg_ms, lags.min_ms, lags.max_ms), (3, Some(2.0), Some(1.0), Some(3.0)));
        assert_eq!(lags.p99_ms, Some(3.0));
        let none = Lags::new(Through::Weir(Level::Global), 10, Vec::new(), &Latencies::default());
        assert_eq!((none.stale, none.avg_ms, none.p99_ms), (0, None, None));
        assert_eq!(words(none.through), "Weir, global");
    }
}
