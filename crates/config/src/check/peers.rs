//! Checks that no program and no proxy is there twice.

use std::collections::HashMap;

use crate::model::config::Config;
use crate::report::error::Report;
use crate::report::place::Lines;

/// Each asks every other one, several times a second at most.
const PROXIES_MAX: usize = 64;

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
