//! Reads the rows of programs and other proxies.

use std::time::Duration;

use weir_topology::Endpoint;

use crate::field::fields::{Fields, Row};
use crate::model::peers::{Job, ProxysqlServer};
use crate::read::servers;
use crate::report::error::Report;
use crate::value::limits::COMMENT_CHARS_MAX;

const FILENAME_CHARS_MAX: usize = 4096;
const ARGUMENT_CHARS_MAX: usize = 32 << 10;
const ARGUMENTS: [&str; 5] = ["arg1", "arg2", "arg3", "arg4", "arg5"];

/// A row of `scheduler`. `next_id` is the id of a row that gives none, as AUTOINCREMENT has it.
pub(crate) fn job(row: &Row<'_>, next_id: &mut u32, report: &mut Report) -> Option<Job> {
    let mut f = Fields::of(row, report);
    let faults_before = f.report.len();
    let id = f.number_or("id", *next_id);
    *next_id = (*next_id).max(id.saturating_add(1));
    let active = f.flag("active");
    for name in ["interval_ms", "filename"] {
        if !f.has(name) {
            f.refuse(name, "is missing");
        }
    }
    let interval = Duration::from_millis(f.number("interval_ms"));
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
    let hostname = servers::hostname(&mut f);
    let port = servers::port(&mut f);
    let weight = f.number("weight");
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(ProxysqlServer { endpoint: Endpoint::new(&hostname?, port), weight, comment })
}
