//! Walks from one server over all that it names, and all that those name.

mod interview;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use weir_client::{Error, Options};
use weir_topology::Endpoint;

use crate::facts::Identity;
use crate::findings::{Findings, NamedBy, Reached, Visit, named_by_visits};

pub(crate) use self::interview::connect;

/// How far the walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most addresses that are tried. Default 64.
    pub addresses_max: usize,
    /// How many at a time. Default 16.
    pub at_a_time: usize,
    /// How long connecting and logging in to one may take. Default 3 s.
    pub connect_timeout: Duration,
    /// How long one answer may take. Default 5 s.
    pub answer_timeout: Duration,
    /// After this no further address is tried. Default 30 s.
    pub whole: Duration,
    /// Whether hosts are asked that nobody names as servers: those from which a binary log is read. Default: no.
    pub asks_binlog_readers: bool,
    /// Whether servers are asked what the account may do, how they see this host, and who reads their binary logs. Default: yes.
    pub asks_about_account: bool,
    /// How often each server is asked whether it is there; the shortest time counts. Default 9.
    pub pings: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            addresses_max: 64,
            at_a_time: 16,
            connect_timeout: Duration::from_secs(3),
            answer_timeout: Duration::from_secs(5),
            whole: Duration::from_secs(30),
            asks_binlog_readers: false,
            asks_about_account: true,
            pings: 9,
        }
    }
}

/// How to log in to a server.
#[derive(Clone, Debug)]
pub struct Dialling {
    /// Account, address, and how connections are encrypted.
    pub options: Options,
    /// In clear where the server offers no TLS.
    pub is_tls_optional: bool,
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// There is no server to begin with.
    #[error("no server is configured")]
    Nowhere,
    /// The first server does not answer, or does not let us in.
    #[error("{endpoint}: {reason}")]
    Start {
        /// Where.
        endpoint: Endpoint,
        /// Why not, and what to do about it.
        reason: String,
    },
}

/// Asks the server at `start`, and all that it and they name. `dial` tells how to log in to each.
///
/// Takes no longer than `limits.whole` and the time for one server.
///
/// # Errors
/// If the first one can't be asked. All others that can't are among [`Findings::unreached`].
pub fn walk(
    start: &Endpoint,
    dial: &(dyn Fn(&Endpoint) -> Result<Dialling, String> + Sync),
    limits: &Limits,
) -> Result<Findings, WalkError> {
    walk_from(&BTreeSet::from([start.clone()]), dial, limits)
}

/// The same from several servers of one cluster; the first that was reached counts as the one that the user has named.
///
/// # Errors
/// If none of them can be asked.
pub fn walk_from(
    starts: &BTreeSet<Endpoint>,
    dial: &(dyn Fn(&Endpoint) -> Result<Dialling, String> + Sync),
    limits: &Limits,
) -> Result<Findings, WalkError> {
    let begun = Instant::now();
    let mut visits: BTreeMap<Endpoint, Visit> = BTreeMap::new();
    let by_user = || BTreeSet::from([(NamedBy::User, None)]);
    let mut open: BTreeMap<_, _> = starts.iter().map(|start| (start.clone(), by_user())).collect();
    let mut cut_off = None;
    while !open.is_empty() {
        let room = limits.addresses_max.saturating_sub(visits.len());
        if open.len() > room || begun.elapsed() >= limits.whole {
            let left = open.len();
            cut_off = Some(match begun.elapsed() >= limits.whole {
                true => format!("{left} addresses were not tried within {} s", limits.whole.as_secs()),
                false => {
                    format!("of {} addresses only {} were tried", visits.len() + left, limits.addresses_max)
                }
            });
        }
        let batch: Vec<_> =
            open.into_iter().take(if begun.elapsed() >= limits.whole { 0 } else { room }).collect();
        if batch.is_empty() {
            break;
        }
        for part in batch.chunks(limits.at_a_time.max(1)) {
            visits.extend(visit_all(part, dial, limits));
        }
        open = named_by_visits(&visits);
        for (endpoint, visit) in &mut visits {
            visit.named.extend(open.remove(endpoint).into_iter().flatten());
        }
        open.retain(|_, named| limits.asks_binlog_readers || !is_guess(named));
    }
    if !limits.asks_binlog_readers {
        visits.extend(guesses(&visits));
    }
    let is_reached = |start: &&Endpoint| visits.get(*start).is_some_and(|visit| visit.outcome.is_ok());
    let start = starts.iter().find(is_reached).or(starts.first());
    let Some(start) = start else { return Err(WalkError::Nowhere) };
    let Some(mut findings) = Findings::merge(start, &visits) else {
        let outcome = visits.remove(start).map(|visit| visit.outcome);
        let reason = outcome.and_then(Result::err).unwrap_or_else(|| "it was not asked".to_owned());
        return Err(WalkError::Start { endpoint: start.clone(), reason });
    };
    findings.cut_off = cut_off;
    Ok(findings)
}

/// Whether nobody says that there is a server.
fn is_guess(named: &BTreeSet<(NamedBy, Option<Identity>)>) -> bool {
    named.iter().all(|(by, _)| *by == NamedBy::BinlogReader)
}

/// Where servers may be whom nobody has named, not asked.
fn guesses(visits: &BTreeMap<Endpoint, Visit>) -> BTreeMap<Endpoint, Visit> {
    let named = named_by_visits(visits).into_iter();
    let new = named.filter(|(endpoint, named)| !visits.contains_key(endpoint) && is_guess(named));
    new.map(|(endpoint, named)| (endpoint, Visit { named, outcome: Err(NOT_ASKED.to_owned()) })).collect()
}

/// An address, and how it came to be known.
type Named = (Endpoint, BTreeSet<(NamedBy, Option<Identity>)>);

fn visit_all(
    batch: &[Named],
    dial: &(dyn Fn(&Endpoint) -> Result<Dialling, String> + Sync),
    limits: &Limits,
) -> Vec<(Endpoint, Visit)> {
    thread::scope(|scope| {
        let visits: Vec<_> =
            batch.iter().map(|(endpoint, _)| scope.spawn(move || visit(endpoint, dial, limits))).collect();
        let ended = batch.iter().zip(visits).map(|((endpoint, named), visit)| {
            let outcome =
                visit.join().unwrap_or_else(|_| Err("a fault of Weir's: the thread has ended".to_owned()));
            (endpoint.clone(), Visit { named: named.clone(), outcome })
        });
        ended.collect()
    })
}

fn visit(
    endpoint: &Endpoint,
    dial: &(dyn Fn(&Endpoint) -> Result<Dialling, String> + Sync),
    limits: &Limits,
) -> Result<Reached, String> {
    let Dialling { options, is_tls_optional } = dial(endpoint)?;
    let options = options.timeouts(limits.connect_timeout, limits.answer_timeout);
    let (mut connection, is_encrypted) =
        interview::connect(options, is_tls_optional).map_err(|error| explain(&error))?;
    interview::interview(&mut connection, limits)
        .map(|(facts, rtt)| Reached { facts, rtt, is_encrypted })
        .map_err(|error| error.to_string())
}

/// ER_ACCESS_DENIED_ERROR and ER_HOST_NOT_PRIVILEGED.
const DENIED: [u16; 2] = [1045, 1130];

/// What lets a server have a password for which it asks.
pub(crate) const PASSWORD_REMEDY: &str = "have its certificate verified (ssl-mode=verify_ca), or allow that for all servers that are found (--trust-peers)";
/// Why a reader of the binary log was not asked.
const NOT_ASKED: &str = "not asked, as only a connection from there is known; set report_host and report_port on the replica, \
    or have such hosts asked (--trust-peers)";

/// Why a login failed, and what to look at.
fn explain(error: &Error) -> String {
    if matches!(error, Error::PasswordWithheld) {
        return format!("{error}; {PASSWORD_REMEDY}");
    }
    match error.code() {
        Some(code) if DENIED.contains(&code) => format!(
            "the server refuses the login: {error}; the password may be wrong, or the account is not for this host"
        ),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::reached;

    #[test]
    fn hosts_that_only_read_a_binary_log_are_told_and_not_asked() {
        let start: Endpoint = "10.0.0.1:3306".parse().unwrap();
        let source = reached(&[("port", "3306"), ("server_id", "1")], |answers| {
            answers.dump_hosts = vec!["10.0.0.7:40000".to_owned()];
        });
        let named = BTreeSet::from([(NamedBy::User, None)]);
        let visits = BTreeMap::from([(start, Visit { named, outcome: Ok(source) })]);
        assert!(named_by_visits(&visits).values().all(is_guess));
        let told: Vec<_> = guesses(&visits).into_iter().collect();
        let [(endpoint, Visit { outcome: Err(reason), .. })] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((endpoint.to_string().as_str(), reason.as_str()), ("10.0.0.7:3306", NOT_ASKED));
        assert!(!is_guess(&BTreeSet::from([(NamedBy::BinlogReader, None), (NamedBy::Source, None)])));
    }

    #[test]
    fn a_withheld_password_says_what_to_do() {
        let text = explain(&Error::PasswordWithheld);
        assert!(text.contains("ssl-mode=verify_ca") && text.contains("--trust-peers"), "{text}");
    }
}
