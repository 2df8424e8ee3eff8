//! What each consistency level promises, and what becomes of reads while a reader stands still.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use toml_edit::Value;
use weir_testkit::{Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use super::{WHERE, wait_readers};
use crate::admin::Admin;

/// How long writers write and readers read.
const RUN: Duration = Duration::from_secs(3);

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("splitting::a_session_never_goes_back_in_time", monotonic),
        Case::parallel("splitting::at_global_a_read_sees_what_anybody_was_acknowledged", global),
        Case::parallel("splitting::at_strict_too", strict),
        Case::parallel("splitting::wsrep_sync_wait_of_a_session_is_kept", server_side),
        Case::parallel("splitting::at_global_a_session_that_keeps_its_connection_waits_there", held),
        Case::parallel("splitting::a_token_shows_the_write_behind_another_weir_too", token),
        Case::parallel("splitting::sessions_share_the_readers_by_weight", shares),
        // It holds a node up, which the cases beside it would feel.
        Case::serial("splitting::a_reader_that_stands_still_is_passed_over", standing_reader),
    ]
}

/// Sessions that write a counter, and others that read it.
struct Counter {
    weir: Weir,
    admin: SocketAddrV4,
    /// Where readers connect.
    reads_at: SocketAddrV4,
    schema: String,
    /// With which readers begin; nothing if it is empty.
    begin: &'static str,
    /// What a writer has been acknowledged.
    acknowledged: AtomicU64,
    is_over: AtomicBool,
}

/// What a reader has read, and what of that was older than it should have been.
#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    stale: Vec<String>,
    by_node: BTreeMap<String, u64>,
}

impl Counter {
    fn new(env: &Env, configure: impl FnOnce(&mut WeirConfig)) -> Result<Self, Box<dyn Error>> {
        let schema = env.schema()?;
        let mut root = Session::open(env.cluster()?.node(1).addr(), &schema)?;
        root.run("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT)")?;
        root.run("INSERT INTO t VALUES (1, 0)")?;
        env.wait_applied()?;
        let admin = env.free_address()?;
        let weir = env.weir(|config| {
            config.admin(admin);
            config.variable("threads", 2);
            configure(config);
        })?;
        Ok(Self {
            reads_at: weir.addr(),
            weir,
            admin,
            schema,
            begin: "",
            acknowledged: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    /// `readers` sessions read while another one writes. `reads` looks at one value, given what was acknowledged before the
    /// read and what the session has read before.
    fn run(
        &self,
        readers: usize,
        hint: &str,
        is_stale: impl Fn(u64, u64, u64) -> bool + Sync,
    ) -> Result<Seen, Box<dyn Error>> {
        let results: Vec<Result<Seen, String>> = thread::scope(|scope| {
            let writer = scope.spawn(|| self.write().map_err(|error| error.to_string()));
            let is_stale = &is_stale;
            let readers: Vec<_> = (0..readers)
                .map(|_| scope.spawn(move || self.read(hint, is_stale).map_err(|error| error.to_string())))
                .collect();
            thread::sleep(RUN);
            self.is_over.store(true, Ordering::SeqCst);
            let wrote = writer.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()));
            let read = readers
                .into_iter()
                .map(|reader| reader.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())));
            read.chain([wrote.map(|()| Seen::default())]).collect()
        });
        let mut sum = Seen::default();
        for result in results {
            let seen = result?;
            sum.reads += seen.reads;
            sum.stale.extend(seen.stale);
            for (node, reads) in seen.by_node {
                *sum.by_node.entry(node).or_default() += reads;
            }
        }
        ensure!(sum.reads > 20, "hardly a read in {RUN:?}: {sum:?}");
        Ok(sum)
    }

    fn write(&self) -> CaseResult {
        let mut session = Session::open(self.weir.addr(), &self.schema)?;
        for value in 1.. {
            if self.is_over.load(Ordering::SeqCst) {
                break;
            }
            session.run(&format!("UPDATE t SET v = {value} WHERE id = 1"))?;
            self.acknowledged.store(value, Ordering::SeqCst);
        }
        Ok(())
    }

    fn read(&self, hint: &str, is_stale: impl Fn(u64, u64, u64) -> bool) -> Result<Seen, Box<dyn Error>> {
        let mut session = Session::open(self.reads_at, &self.schema)?;
        if !self.begin.is_empty() {
            session.run(self.begin)?;
        }
        let (mut seen, mut last) = (Seen::default(), 0);
        while !self.is_over.load(Ordering::SeqCst) {
            let acknowledged = self.acknowledged.load(Ordering::SeqCst);
            let rows = session.rows(&format!("{hint}SELECT v, ({WHERE}) FROM t WHERE id = 1"))?;
            let row = rows.first().ok_or("the row is gone")?;
            let value: u64 = row[0].parse()?;
            seen.reads += 1;
            *seen.by_node.entry(row[1].clone()).or_default() += 1;
            if is_stale(value, acknowledged, last) {
                seen.stale.push(format!("{value} on {}: acknowledged {acknowledged}, read {last}", row[1]));
            }
            last = last.max(value);
        }
        Ok(seen)
    }
}

fn on_readers(seen: &Seen) -> CaseResult {
    let on_writer = seen.by_node.get("n1").copied().unwrap_or(0);
    ensure!(on_writer < seen.reads, "no reader was used: {:?}", seen.by_node);
    Ok(())
}

fn monotonic(env: &Env) -> CaseResult {
    let seen = Counter::new(env, |_| {})?.run(6, "", |value, _, last| value < last)?;
    ensure!(
        seen.stale.is_empty(),
        "{} of {} reads went back: {:?}",
        seen.stale.len(),
        seen.reads,
        seen.stale
    );
    on_readers(&seen)
}

/// Each way of asking for it, alone.
fn global(env: &Env) -> CaseResult {
    const ATTRIBUTES: &str = "{\"weir_consistency\": \"global\"}";
    let rule: [(&str, Value); 4] = [
        ("rule_id", 1.into()),
        ("active", 1.into()),
        ("match_digest", "VARIABLE_VALUE".into()),
        ("attributes", ATTRIBUTES.into()),
    ];
    let hostgroup = [("hostgroup_id", hostgroup::WRITER.into()), ("consistency", "global".into())];
    let counter = |configure: &dyn Fn(&mut WeirConfig)| Counter::new(env, configure);
    let plain = |_: &mut WeirConfig| {};
    let by_rule = |config: &mut WeirConfig| {
        config.push("mysql_query_rules", &rule);
    };
    let by_user = |config: &mut WeirConfig| {
        config.user_column("app", "attributes", ATTRIBUTES);
    };
    let by_hostgroup = |config: &mut WeirConfig| {
        config.push("weir_hostgroups", &hostgroup);
    };
    all_acknowledged(&counter(&plain)?, "/* weir_consistency=global */ ")?;
    all_acknowledged(&Counter { begin: GLOBAL, ..counter(&plain)? }, "")?;
    all_acknowledged(&counter(&by_rule)?, "")?;
    all_acknowledged(&counter(&by_user)?, "")?;
    all_acknowledged(&counter(&by_hostgroup)?, "")
}

const GLOBAL: &str = "SET weir_consistency = 'global'";

fn all_acknowledged(counter: &Counter, hint: &str) -> CaseResult {
    let seen = counter.run(3, hint, |value, acknowledged, last| value < acknowledged || value < last)?;
    ensure!(seen.stale.is_empty(), "{} of {} reads: {:?}", seen.stale.len(), seen.reads, seen.stale);
    on_readers(&seen)
}

/// Sessions of a replicas listener keep one connection to a reader: it is checked there.
fn held(env: &Env) -> CaseResult {
    let replicas = env.free_address()?;
    let listener = [("address", replicas.to_string().into()), ("mode", "replicas".into())];
    let counter = Counter::new(env, |config| {
        config.push("weir_listeners", &listener);
    })?;
    all_acknowledged(&Counter { reads_at: replicas, begin: GLOBAL, ..counter }, "")
}

/// Who is given a token sees the write, behind another Weir, too.
fn token(env: &Env) -> CaseResult {
    let (one, two) = (Counter::new(env, |_| {})?, env.weir(|_| {})?);
    let mut writer = Session::open(one.weir.addr(), &one.schema)?;
    let mut others = [Session::open(one.weir.addr(), &one.schema)?, Session::open(two.addr(), &one.schema)?];
    // A Weir that has just begun does not know yet whose data it is.
    eventually("it is known", Duration::from_secs(30), || {
        Ok(others[1].value("SELECT @@weir_token")? != "NULL")
    })?;
    for value in 1..=100 {
        writer.run(&format!("UPDATE t SET v = {value} WHERE id = 1"))?;
        let token = writer.value("SELECT @@weir_token")?;
        for other in &mut others {
            other.run(&format!("SET weir_token = '{token}'"))?;
            let seen = other.value("SELECT v FROM t WHERE id = 1")?;
            ensure!(seen == value.to_string(), "{value} was written before {token}, {seen} is seen");
        }
    }
    Ok(())
}

fn strict(env: &Env) -> CaseResult {
    let is_stale = |value, acknowledged, last| value < acknowledged || value < last;
    let seen = Counter::new(env, |_| {})?.run(4, "/* weir_consistency=strict */ ", is_stale)?;
    ensure!(seen.stale.is_empty(), "{} of {} reads: {:?}", seen.stale.len(), seen.reads, seen.stale);
    on_readers(&seen)
}

/// MariaDB forgets it on connections that were reset.
fn server_side(env: &Env) -> CaseResult {
    let is_stale = |value, acknowledged, last| value < acknowledged || value < last;
    let counter = Counter { begin: "SET SESSION wsrep_sync_wait = 1", ..Counter::new(env, |_| {})? };
    let seen = counter.run(4, "", is_stale)?;
    ensure!(seen.stale.is_empty(), "{} of {} reads: {:?}", seen.stale.len(), seen.reads, seen.stale);
    on_readers(&seen)
}

fn shares(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    wait_readers(&weir)?;
    let mut sessions = (0..20).map(|_| Session::open(weir.addr(), "test")).collect::<Result<Vec<_>, _>>()?;
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    let mut moved = 0;
    for session in &mut sessions {
        let node = session.value(WHERE)?;
        *first.entry(node.clone()).or_default() += 1;
        // It stays there, for half a second at least: what it has seen is nowhere else for certain.
        for _ in 0..5 {
            moved += usize::from(session.value(WHERE)? != node);
        }
    }
    ensure!(moved <= 10, "{moved} of 100 reads were not where their session had read before");
    // Each worker shares its own.
    let is_fair = |node: &str| first.get(node).is_some_and(|sessions| (8..=12).contains(sessions));
    ensure!(is_fair("n2") && is_fair("n3"), "{first:?}");
    Ok(())
}

fn standing_reader(env: &Env) -> CaseResult {
    let counter = Counter::new(env, |_| {})?;
    let mut session = Session::open(counter.weir.addr(), &counter.schema)?;
    session.run("UPDATE t SET v = 1 WHERE id = 1")?;
    // Nothing is applied there any more.
    let mut holder = Session::open(env.cluster()?.node(2).addr(), "test")?;
    holder.run("FLUSH TABLES WITH READ LOCK")?;
    let mut longest = Duration::ZERO;
    let outcome: CaseResult = (2..12).try_for_each(|value| {
        session.run(&format!("UPDATE t SET v = {value} WHERE id = 1"))?;
        let begun = Instant::now();
        let rows = session.rows(&format!("SELECT v, ({WHERE}) FROM t WHERE id = 1"))?;
        longest = longest.max(begun.elapsed());
        ensure!(rows[0][0] == value.to_string() && rows[0][1] != "n2", "{value} was written, read {rows:?}");
        Ok(())
    });
    holder.run("UNLOCK TABLES")?;
    outcome?;
    ensure!(longest < Duration::from_secs(1), "a read took {longest:?}");
    let admin = Admin::at(counter.admin);
    let counted = admin.run("SELECT at_once + waited + on_writer + timed_out FROM stats_weir_reads")?;
    ensure!(counted.iter().any(|row| row.parse::<u64>().is_ok_and(|reads| reads >= 10)), "{counted:?}");
    let checked =
        admin.run("SELECT hostname FROM stats_weir_coverage WHERE checks > 0 AND unchecked = ''")?;
    ensure!(checked.len() >= 2, "{checked:?}");
    Ok(())
}
