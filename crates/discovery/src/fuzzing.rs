//! Runs addresses and servers that say anything, for the fuzz targets and the corpus test. A broken rule panics, and so
//! does nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_config::Secret;
use weir_topology::Endpoint;

use crate::address::{ServerUrl, SslMode};
use crate::facts::{Answers, Facts, NamedRow, ROWS_MAX, peers};
use crate::findings::{Findings, NamedBy, Reached, Visit};
use crate::proposal::{Proposal, Trust, Wishes};
use crate::{Cluster, Places, config_text};

/// An address: what is understood is written so that it is understood the same, without its password.
pub fn fuzz_address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read: Result<ServerUrl, _> = text.parse();
    match read {
        Ok(url) => {
            let written = url.to_string();
            let again: ServerUrl = written.parse().unwrap_or_else(|error| panic!("{written}: {error}"));
            assert_eq!(again, ServerUrl { password: None, ..url.clone() });
            let secret = url.password.as_ref().map(Secret::expose).filter(|secret| secret.len() > 20);
            assert!(secret.is_none_or(|secret| !written.contains(secret) || url.user.contains(secret)));
        }
        // Its number of characters counts from 1.
        Err(error) => assert!(!error.to_string().contains("character 0")),
    }
}

/// Two servers, each in sections that an empty line ends, as [`answers`] reads them: whatever they say, the configuration that
/// comes of it is valid.
pub fn fuzz_facts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (one, two) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let start = Endpoint::new("10.0.0.1", 3306);
    let mut visits = BTreeMap::new();
    for (endpoint, text) in [(start.clone(), one), (Endpoint::new("10.0.0.2", 3306), two)] {
        let facts = Facts::from_answers(&answers(text));
        assert!(facts.sources.len() <= ROWS_MAX && facts.replicas.len() <= ROWS_MAX);
        for peer in peers(&facts) {
            assert!(peer.endpoint.port > 0 && !peer.endpoint.host.is_empty());
            assert!(!peer.endpoint.host.contains([' ', '\n', '"']), "{:?}", peer.endpoint);
            let named = BTreeSet::from([(peer.by, peer.identity)]);
            visits.entry(peer.endpoint).or_insert(Visit { named, outcome: Err("not\nasked".to_owned()) });
        }
        let reached = Reached { facts, rtt: Duration::from_micros(100), is_encrypted: false };
        let named = BTreeSet::from([(NamedBy::User, None)]);
        visits.insert(endpoint, Visit { named, outcome: Ok(reached) });
    }
    let findings = Findings::merge(&start, &visits).unwrap_or_else(|| panic!("the first one was reached"));
    assert!(findings.start().is_some_and(|server| server.names.contains(&start)));
    let Ok(cluster) = Cluster::of(&findings) else { return };
    assert!(cluster.members.iter().all(|member| findings.servers.get(member.server).is_some()));
    let wishes = Wishes {
        monitor: Trust::Make,
        prefix: "weir_".to_owned(),
        assist: true,
        switchover: true,
        several_weirs: true,
        account_hosts: Vec::new(),
        known_passwords: BTreeMap::new(),
        users: Vec::new(),
        follows_accounts: false,
        admin: crate::AdminWish { has_port: true, ..crate::AdminWish::default() },
        ssl_mode: SslMode::Preferred,
        ssl_ca: None,
    };
    let Ok(proposal) = Proposal::new(&findings, &cluster, &wishes, &mut || Secret::new("secret")) else {
        return;
    };
    let written = config_text(&proposal, Places::default());
    if let Err(faults) = weir_config::parse(&written, "weir.toml") {
        let is_number = |server: &crate::Row| server.endpoint.host.parse::<u64>().is_ok();
        assert!(proposal.servers.iter().any(is_number), "{faults:?}\n{written}");
    }
}

/// Sections: variables and status (a name, a tab, a value), members, sources, replicas (a row a line, of `name=value` between
/// tabs), readers of the binary log, and lines of USER() and SHOW GRANTS.
fn answers(text: &str) -> Answers {
    let mut sections = text.split("\n\n");
    let mut next = || sections.next().unwrap_or_default();
    let (variables, members, sources, replicas) = (pairs(next()), rows(next()), rows(next()), rows(next()));
    let dump_hosts = next().lines().map(str::to_owned).collect();
    let mut account = next().lines().map(str::to_owned);
    Answers {
        greeting: String::new(),
        status: variables.clone(),
        variables,
        members,
        sources,
        replicas,
        dump_hosts,
        user: account.next().unwrap_or_default(),
        current_user: String::new(),
        grants: account.collect(),
        refused: Vec::new(),
    }
}

fn pairs(section: &str) -> Vec<(String, String)> {
    let pair = |line: &str| line.split_once('\t').map(|(name, value)| (name.to_owned(), value.to_owned()));
    section.lines().filter_map(pair).collect()
}

fn rows(section: &str) -> Vec<NamedRow> {
    let column = |text: &str| match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (text.to_owned(), None),
    };
    section.lines().map(|line| NamedRow(line.split('\t').map(column).collect())).collect()
}
