//! Lays out the rows of each pane as cells, in the order that the user wants.

use std::cmp::Ordering;

use crate::app::{App, Pane, Sort};
use crate::number_format::{harmless, number, time, whole};
use crate::rates::Rated;
use crate::top_data::{Digest, Server, Session};

/// A column: its title, its width in characters (0: what is left), and whether it is a number.
pub(crate) struct Column(pub &'static str, pub u16, pub bool);

/// A row, and how urgent it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub cells: Vec<String>,
    pub urgency: Urgency,
}

/// The urgency of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Usual,
    Quiet,
    Notable,
    Bad,
}

/// The columns of a pane.
pub(crate) fn columns(pane: Pane) -> &'static [Column] {
    match pane {
        Pane::Servers => &[
            Column("HG", 4, true),
            Column("SERVER", 19, false),
            Column("ROLE", 7, false),
            Column("STATUS", 8, false),
            Column("USED", 4, true),
            Column("FREE", 4, true),
            Column("Q/S", 6, true),
            Column("AVG", 5, true),
            Column("P95", 5, true),
            Column("LAG", 5, true),
            Column("REASON", 0, false),
        ],
        Pane::Digests => &[
            Column("LOAD", 5, true),
            Column("Q/S", 6, true),
            Column("AVG", 6, true),
            Column("P95", 6, true),
            Column("COUNT", 6, true),
            Column("HG", 5, true),
            Column("USER", 8, false),
            Column("STATEMENT", 0, false),
        ],
        Pane::Sessions => &[
            Column("ID", 7, true),
            Column("USER", 8, false),
            Column("CLIENT", 15, false),
            Column("HG", 5, true),
            Column("COMMAND", 7, false),
            Column("TIME", 6, true),
            Column("PINS", 14, false),
            Column("STATEMENT", 0, false),
        ],
    }
}

/// The rows of a pane that the filter lets through.
pub(crate) fn lines(app: &App, pane: Pane) -> Vec<Line> {
    let sort = app.sorts[pane as usize];
    let rates = &app.rates;
    let mut lines: Vec<Line> = match pane {
        Pane::Servers => sorted(&rates.servers, sort, by_server).into_iter().map(server).collect(),
        Pane::Digests => sorted(&rates.digests, sort, by_digest).into_iter().map(digest).collect(),
        Pane::Sessions => sorted(&rates.sessions, sort, by_session).into_iter().map(session).collect(),
    };
    if !app.filter.is_empty() {
        let wanted = app.filter.to_lowercase();
        lines.retain(|line| line.cells.iter().any(|cell| cell.to_lowercase().contains(&wanted)));
    }
    lines
}

fn sorted<T>(rows: &[T], sort: Sort, compare: fn(usize, &T, &T) -> Ordering) -> Vec<&T> {
    let mut rows: Vec<&T> = rows.iter().collect();
    rows.sort_by(|one, other| compare(sort.by, one, other));
    if sort.is_reversed {
        rows.reverse();
    }
    rows
}

fn larger_first(one: f64, other: f64) -> Ordering {
    other.total_cmp(&one)
}

fn by_server(by: usize, one: &Rated<Server>, other: &Rated<Server>) -> Ordering {
    let place = |row: &Rated<Server>| (row.of.hostgroup, row.of.server.clone());
    let first = match by {
        1 => larger_first(one.per_s, other.per_s),
        2 => larger_first(one.average_us.unwrap_or(0.0), other.average_us.unwrap_or(0.0)),
        3 => other.of.used.cmp(&one.of.used),
        _ => Ordering::Equal,
    };
    first.then_with(|| place(one).cmp(&place(other)))
}

fn by_digest(by: usize, one: &Rated<Digest>, other: &Rated<Digest>) -> Ordering {
    let first = match by {
        1 => larger_first(one.per_s, other.per_s),
        2 => larger_first(one.average_us.unwrap_or(0.0), other.average_us.unwrap_or(0.0)),
        3 => other.of.p95_us.cmp(&one.of.p95_us),
        4 => other.of.count.cmp(&one.of.count),
        _ => larger_first(one.load, other.load),
    };
    first.then(other.of.sum_us.cmp(&one.of.sum_us)).then_with(|| one.of.digest.cmp(&other.of.digest))
}

fn by_session(by: usize, one: &Session, other: &Session) -> Ordering {
    let longest = other.since_ms.cmp(&one.since_ms);
    let first = match by {
        1 => longest,
        2 => one.pins.is_empty().cmp(&other.pins.is_empty()).then_with(|| one.pins.cmp(&other.pins)),
        3 => one.username.cmp(&other.username),
        4 => Ordering::Equal,
        _ => other
            .is_busy
            .cmp(&one.is_busy)
            .then(one.pins.is_empty().cmp(&other.pins.is_empty()))
            .then(longest),
    };
    first.then(one.id.cmp(&other.id))
}

/// Roles and states in eight characters.
fn short(word: &str) -> &str {
    match word {
        "backup writer" => "backup",
        "OFFLINE_SOFT" => "OFF_SOFT",
        "OFFLINE_HARD" => "OFF_HARD",
        "SHUNNED_REPLICATION_LAG" => "LAGGING",
        word => word,
    }
}

fn server(row: &Rated<Server>) -> Line {
    let of = &row.of;
    let urgency = match of.status.as_str() {
        "ONLINE" if of.role == "writer" => Urgency::Notable,
        "ONLINE" => Urgency::Usual,
        "OFFLINE_SOFT" => Urgency::Quiet,
        _ => Urgency::Bad,
    };
    let reason = match of.unchecked.as_str() {
        "" => of.reason.clone(),
        unchecked => format!("{}; {unchecked}", of.reason),
    };
    let cells = vec![
        of.hostgroup.to_string(),
        harmless(&of.server),
        short(&of.role).to_owned(),
        short(&of.status).to_owned(),
        whole(of.used),
        whole(of.free),
        number(row.per_s),
        time(row.average_us),
        time((of.queries > 0).then_some(of.p95_us as f64)),
        time(of.lag_us.map(|lag_us| lag_us as f64)),
        harmless(&reason),
    ];
    Line { cells, urgency }
}

fn digest(row: &Rated<Digest>) -> Line {
    let of = &row.of;
    let cells = vec![
        format!("{:.2}", row.load),
        number(row.per_s),
        time(row.average_us),
        time(Some(of.p95_us as f64)),
        whole(of.count),
        of.hostgroup.to_string(),
        harmless(&of.username),
        harmless(&of.text),
    ];
    Line { cells, urgency: if row.per_s > 0.0 { Urgency::Usual } else { Urgency::Quiet } }
}

fn session(of: &Session) -> Line {
    let urgency = match (of.is_busy, of.pins.is_empty()) {
        (_, false) => Urgency::Notable,
        (true, true) => Urgency::Usual,
        (false, true) => Urgency::Quiet,
    };
    let cells = vec![
        of.id.to_string(),
        harmless(&of.username),
        harmless(&of.client),
        of.hostgroup.map_or_else(|| "-".to_owned(), |hostgroup| hostgroup.to_string()),
        of.command.clone(),
        time(Some(of.since_ms as f64 * 1e3)),
        of.pins.clone(),
        harmless(&of.text),
    ];
    Line { cells, urgency }
}
