//! `scheduler` and `proxysql_servers`: programs that Weir runs, and the other proxies.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use weir_topology::Endpoint;

use crate::error::Report;
use crate::fields::Fields;
use crate::tables::{self, COMMENT_CHARS_MAX, INT_MAX, Lines, Row};
use crate::types::Config;

/// ProxySQL's limits of `interval_ms`.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 100..=100_000_000;
const FILENAME_CHARS_MAX: usize = 4096;
const ARGUMENT_CHARS_MAX: usize = 32 << 10;
const ARGUMENTS: [&str; 5] = ["arg1", "arg2", "arg3", "arg4", "arg5"];
/// Each asks every other one, several times a second at most.
const PROXIES_MAX: usize = 64;

/// A row of `scheduler`: a program that is run again and again. Key: id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The row's id; without one the next.
    pub id: u32,
    /// Whether it runs, default true.
    pub active: bool,
    /// From one start to the next. Required.
    pub interval: Duration,
    /// The program, an absolute path. Required.
    pub filename: PathBuf,
    /// Its arguments, up to the first that is not given.
    pub arguments: Vec<String>,
    /// For humans.
    pub comment: String,
}

/// A row of `proxysql_servers`: a proxy of the cluster, maybe this one. Key: (hostname, port).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxysqlServer {
    /// Where its admin interface is; the port's default is 6032.
    pub endpoint: Endpoint,
    /// Kept for ProxySQL's sake, default 0.
    pub weight: u32,
    /// For humans.
    pub comment: String,
}

/// A row of `scheduler`. `next_id` is the id of a row that gives none, as AUTOINCREMENT has it.
pub(crate) fn job(row: &Row<'_>, next_id: &mut u32, report: &mut Report) -> Option<Job> {
    let mut f = Fields::of(row, report);
    let faults_before = f.report.len();
    let id = f.integer("id", *next_id, 0..=INT_MAX);
    *next_id = (*next_id).max(id.saturating_add(1));
    let active = f.boolean("active", true);
    for name in ["interval_ms", "filename"] {
        if !f.has(name) {
            f.refuse(name, "is missing");
        }
    }
    let interval = f.millis("interval_ms", Duration::from_secs(1), INTERVAL_MS);
    let filename = f.text("filename", "/", FILENAME_CHARS_MAX);
    if !filename.starts_with('/') {
        f.refuse("filename", "is not an absolute path");
    }
    let given = ARGUMENTS.map(|name| f.optional_text(name, ARGUMENT_CHARS_MAX));
    if let Some(gap) = given.iter().position(Option::is_none)
        && let Some(after) = given.iter().skip(gap).position(Option::is_some)
    {
        let reason = format!("is not passed on: {} is missing", ARGUMENTS[gap]);
        f.tolerate(ARGUMENTS[gap + after], reason);
    }
    let arguments = given.into_iter().map_while(|argument| argument).collect();
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    let job = Job { id, active, interval, filename: filename.into(), arguments, comment };
    (report.len() == faults_before).then_some(job)
}

/// A row of `proxysql_servers`.
pub(crate) fn proxy(row: &Row<'_>, report: &mut Report) -> Option<ProxysqlServer> {
    let mut f = Fields::of(row, report);
    let hostname = tables::hostname(&mut f);
    let port = tables::port_or(&mut f, 6032);
    let weight = f.integer("weight", 0, 0..=INT_MAX);
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(ProxysqlServer { endpoint: Endpoint::new(&hostname?, port), weight, comment })
}

/// No job and no proxy twice.
pub(crate) fn distinct(config: &Config, jobs: &Lines<'_>, proxies: &Lines<'_>, report: &mut Report) {
    let mut seen = HashMap::new();
    for (index, job) in config.scheduler.iter().enumerate().filter(|_| jobs.are_complete(&config.scheduler)) {
        let place = jobs.at(index);
        if let Some(first) = seen.insert(job.id, place) {
            report.refuse(place, "id", format!("{} is already there ({})", job.id, first.pointer()));
        }
    }
    if !proxies.are_complete(&config.proxysql_servers) {
        return;
    }
    let mut seen = HashMap::new();
    for (index, proxy) in config.proxysql_servers.iter().enumerate() {
        let place = proxies.at(index);
        if let Some(first) = seen.insert(&proxy.endpoint, place) {
            report.refuse(place, "", format!("{} is already there ({})", proxy.endpoint, first.pointer()));
        } else if index == PROXIES_MAX {
            report.refuse(place, "", format!("more than {PROXIES_MAX} proxies"));
        }
    }
}
