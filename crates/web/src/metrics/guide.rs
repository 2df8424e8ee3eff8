//! Makes the guide's list of metrics from the metrics themselves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use weir_http::{Family, Kind};
use weir_proxy::stats::{CommandRow, CoverageRow, Histogram, ReadCounts, ServerRow, Totals, WorkerReport};
use weir_sql::Kind as Statement;
use weir_topology::{Endpoint, EpochRow, Group, Leadership, Place, Reason, Role, Roles, Status};

use super::{DIGEST_LABELS, ERROR_LABELS, Limits};
use crate::process;

const HEAD: &str = "# Reference: every metric\n\n\
    <!-- Made from the metrics of crates/web by `WEIR_BLESS=1 cargo test -p weir-web metrics::guide`. -->\n\n\
    How to scrape them, and what to alert on: [metrics](metrics.md#prometheus).\n";

/// One of everything that metrics are about.
fn roles() -> Roles {
    let endpoint: Endpoint = "db1:3306".parse().unwrap();
    let place = Place {
        hostgroup: 10,
        endpoint,
        role: Role::Writer,
        status: Status::Online,
        weight: 1,
        max_connections: 1,
        reason: Reason::NotObserved,
        trouble: None,
    };
    let row = EpochRow {
        epoch: 1,
        version: 1,
        writer: place.endpoint.clone(),
        writer_address: None,
        claimed_by: "a".into(),
        is_open: true,
        switching: None,
    };
    let leadership = Some(Leadership { row: Some(row), ..Leadership::default() });
    let group = Group { writer_hostgroup: 10, leadership, ..Group::default() };
    Roles { places: vec![place], groups: vec![group], ..Roles::default() }
}

fn families() -> Vec<Family> {
    let roles = roles();
    let endpoint = roles.places[0].endpoint.clone();
    let pools = BTreeMap::from([((10, endpoint.to_string()), ServerRow::default())]);
    let command = CommandRow { kind: Statement::Select, count: 1, sum_us: 1, latency: Histogram::default() };
    let worker = WorkerReport {
        rules: vec![(1, 1)],
        rule_times: vec![(1, Default::default())],
        reads: vec![(10, ReadCounts::default())],
        coverage: vec![CoverageRow {
            endpoint: endpoint.to_string(),
            age_ns: Some(1),
            latency_ns: 1,
            checks: 1,
            unchecked: None,
        }],
        ..WorkerReport::default()
    };
    let mut families = super::about(Limits::default(), 1, false, 1.0);
    families.extend(super::totals::families(&Totals::default()));
    families.extend(super::logs(Default::default()));
    families.extend(super::pool(&pools));
    families.extend(super::freshness(std::slice::from_ref(&worker)));
    families.extend(super::places(&roles, &BTreeMap::from([(endpoint, 1)])));
    families.push(super::hostgroups(&pools));
    families.extend(super::clusters(&roles));
    families.extend(super::commands(&[command]));
    families.push(super::errors(&[]));
    families.extend(super::rules(&[worker]));
    families.extend(super::digests(&[], 0));
    families.push(super::digests_dropped(0));
    families.extend(process::families(1.0));
    families
}

/// Labels with their values where these are always the same.
fn labels(family: &Family) -> String {
    let without_samples: &[&str] = match family.name {
        "mysql_error" => &ERROR_LABELS,
        "weir_digest_statement_seconds" => &DIGEST_LABELS,
        _ => &[],
    };
    let mut known: BTreeMap<&str, Vec<&str>> =
        without_samples.iter().map(|name| (*name, Vec::new())).collect();
    for (name, value) in family.samples.iter().flat_map(|sample| &sample.labels) {
        let values = known.entry(name).or_default();
        if !values.contains(&value.as_str()) {
            values.push(value);
        }
    }
    let shown = known.iter().map(|(name, values)| match values.len() {
        0 | 1 => format!("`{name}`"),
        _ => format!("`{name}`: {}", values.join(", ")),
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn row(family: &Family) -> String {
    let (kind, end) = match family.kind {
        Kind::Counter | Kind::NamesakeCounter => ("counter", "_total"),
        Kind::Gauge => ("gauge", ""),
        Kind::Histogram => ("histogram", ""),
    };
    format!("| `{}{end}` | {kind} | {} | {} |\n", family.name, labels(family), family.help)
}

#[test]
fn the_guide_lists_the_metrics() {
    let mut families = families();
    families.sort_by_key(|family| family.name);
    let mut made = HEAD.to_owned();
    for (title, is_in) in [
        (
            "ProxySQL's names",
            (|name| !name.starts_with("weir_") && !name.starts_with("process_")) as fn(&str) -> bool,
        ),
        ("Weir's own", |name| name.starts_with("weir_")),
        ("The process", |name| name.starts_with("process_")),
    ] {
        let _ =
            write!(made, "\n## {title}\n\n| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n");
        made.extend(families.iter().filter(|family| is_in(family.name)).map(row));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/metrics-reference.md");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(made.lines()).find(|(there, made)| there != made);
    assert!(
        there == made,
        "docs/guide/metrics-reference.md: write it with WEIR_BLESS=1; first difference: {differs:?}"
    );
}
