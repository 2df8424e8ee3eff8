//! Makes rates of the data of two moments.

use std::collections::HashMap;

use crate::top_data::{Digest, Reads, Server, Session, TopData};

/// Rates between two moments, and the state now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    pub now: TopData,
    /// None the first time.
    pub questions_per_s: Option<f64>,
    /// By writer hostgroup, reads a second; none the first time.
    pub reads: HashMap<u32, ReadRates>,
    pub servers: Vec<Rated<Server>>,
    pub digests: Vec<Rated<Digest>>,
    pub sessions: Vec<Session>,
}

/// Reads a second, by how they came to be fresh enough.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReadRates {
    pub at_once: f64,
    pub waited: f64,
    pub on_writer: f64,
    pub timed_out: f64,
}

/// Something that runs statements.
#[derive(Clone, Debug)]
pub(crate) struct Rated<T> {
    pub of: T,
    /// Statements a second.
    pub per_s: f64,
    /// How many of them were at work at a time, on average.
    pub load: f64,
    /// How long each took; none if there were none.
    pub average_us: Option<f64>,
}

impl Rates {
    /// From the data of before, if there was some and no restart since.
    pub(crate) fn new(before: Option<&TopData>, now: TopData) -> Self {
        let before = before.filter(|before| before.at_ms < now.at_ms && before.questions <= now.questions);
        let Some(before) = before else { return Self::first(now) };
        let seconds = (now.at_ms - before.at_ms) as f64 / 1e3;
        let servers: HashMap<_, _> =
            before.servers.iter().map(|row| ((row.hostgroup, row.server.as_str()), row)).collect();
        let digests: HashMap<_, _> = before.digests.iter().map(|row| (identity(row), row)).collect();
        let server = |row: &Server| {
            let before = servers.get(&(row.hostgroup, row.server.as_str()));
            let before = before.map_or((row.queries, row.sum_us), |b| (b.queries, b.sum_us));
            rated(row.clone(), since(row.queries, before.0), since(row.sum_us, before.1), seconds)
        };
        let digest = |row: &Digest| {
            // One that was not shown before may be new or old: it is rated from the next time on.
            let before = digests.get(&identity(row)).map_or((row.count, row.sum_us), |b| (b.count, b.sum_us));
            rated(row.clone(), since(row.count, before.0), since(row.sum_us, before.1), seconds)
        };
        let reads = now.clusters.iter().filter_map(|cluster| {
            let known = before.clusters.iter().find(|b| b.writer_hostgroup == cluster.writer_hostgroup);
            let (now, before) = (cluster.reads.as_ref()?, known?.reads.as_ref()?);
            let rate = |of: fn(&Reads) -> u64| since(of(now), of(before)) as f64 / seconds;
            let rates = ReadRates {
                at_once: rate(|reads| reads.at_once),
                waited: rate(|reads| reads.waited),
                on_writer: rate(|reads| reads.on_writer),
                timed_out: rate(|reads| reads.timed_out),
            };
            Some((cluster.writer_hostgroup, rates))
        });
        Self {
            reads: reads.collect(),
            questions_per_s: Some((now.questions - before.questions) as f64 / seconds),
            servers: now.servers.iter().map(server).collect(),
            digests: now.digests.iter().map(digest).collect(),
            sessions: now.sessions.clone(),
            now,
        }
    }

    fn first(now: TopData) -> Self {
        Self {
            reads: HashMap::new(),
            questions_per_s: None,
            servers: now.servers.iter().map(|row| rated(row.clone(), 0, 0, 1.0)).collect(),
            digests: now.digests.iter().map(|row| rated(row.clone(), 0, 0, 1.0)).collect(),
            sessions: now.sessions.clone(),
            now,
        }
    }
}

fn identity(row: &Digest) -> (u32, &str, &str, &str, &str) {
    (row.hostgroup, &row.digest, &row.username, &row.schemaname, &row.client_address)
}

/// What came since; counters that began again count from there.
fn since(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

fn rated<T>(of: T, count: u64, took_us: u64, seconds: f64) -> Rated<T> {
    Rated {
        of,
        per_s: count as f64 / seconds,
        load: took_us as f64 / 1e6 / seconds,
        average_us: (count > 0).then(|| took_us as f64 / count as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top_data::Cluster;

    fn data(at_ms: u64, queries: u64, sum_us: u64) -> TopData {
        let server = Server { queries, sum_us, ..Server::default() };
        let digest = Digest { count: queries, sum_us, ..Digest::default() };
        TopData {
            at_ms,
            questions: queries,
            servers: vec![server],
            digests: vec![digest],
            ..TopData::default()
        }
    }

    #[test]
    fn what_came_between() {
        let rates = Rates::new(Some(&data(1000, 10, 100)), data(3000, 30, 2_000_100));
        assert_eq!(rates.questions_per_s, Some(10.0));
        let (server, digest) = (&rates.servers[0], &rates.digests[0]);
        assert_eq!((server.per_s, server.load, server.average_us), (10.0, 1.0, Some(100_000.0)));
        assert_eq!(digest.per_s, 10.0);
    }

    #[test]
    fn how_reads_were_served_meanwhile() {
        let data = |at_ms, at_once, timed_out| {
            let reads = Some(Reads { at_once, timed_out, ..Reads::default() });
            let cluster = Cluster { writer_hostgroup: 7, reads, ..Cluster::default() };
            TopData { at_ms, clusters: vec![cluster], ..TopData::default() }
        };
        let rates = Rates::new(Some(&data(1000, 10, 1)), data(3000, 30, 2));
        assert_eq!(rates.reads[&7], ReadRates { at_once: 10.0, timed_out: 0.5, ..ReadRates::default() });
        assert!(Rates::new(None, data(3000, 30, 2)).reads.is_empty());
    }

    #[test]
    fn nothing_is_made_up_after_a_restart_or_a_reset() {
        let restarted = Rates::new(Some(&data(100_000, 10, 100)), data(50, 3, 9));
        assert_eq!((restarted.questions_per_s, restarted.servers[0].per_s), (None, 0.0));
        let mut reset = data(2000, 10, 7);
        (reset.digests[0].count, reset.digests[0].sum_us) = (1, 7);
        let rates = Rates::new(Some(&data(1000, 10, 100)), reset);
        assert_eq!((rates.digests[0].per_s, rates.digests[0].average_us), (1.0, Some(7.0)));
        assert_eq!(Rates::new(None, data(1, 1, 1)).servers[0].average_us, None);
    }
}
