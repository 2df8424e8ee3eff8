//! Counts statements by the query rule that decided last.

use foldhash::HashMap;

use super::Histogram;
use crate::keys::Nanos;

/// Rules with times of their own in one worker. Statements of further ones are not timed by rule; hits count always.
const RULES_MAX: usize = 2048;

/// How long statements of one rule took, from the command to the end of the reply.
#[derive(Clone, Debug, Default)]
pub struct RuleTimes {
    /// Their total time.
    pub sum_us: u64,
    /// How long they took.
    pub latency: Histogram,
}

/// Times by rule_id.
#[derive(Debug, Default)]
pub(crate) struct Rules(HashMap<u32, RuleTimes>);

impl Rules {
    /// Counts a statement; nothing is allocated once a rule is known.
    pub(crate) fn count(&mut self, rule_id: u32, took_ns: Nanos) {
        let is_full = self.0.len() >= RULES_MAX;
        let times = match self.0.get_mut(&rule_id) {
            Some(times) => times,
            None if is_full => return,
            None => self.0.entry(rule_id).or_default(),
        };
        let took_us = took_ns / 1000;
        times.sum_us = times.sum_us.saturating_add(took_us);
        times.latency.record(took_us);
    }

    /// Copies them.
    pub(crate) fn rows(&self) -> Vec<(u32, RuleTimes)> {
        self.0.iter().map(|(rule_id, times)| (*rule_id, times.clone())).collect()
    }

    /// Other rules are in force: as with hits, all begins again.
    pub(crate) fn begin_again(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_beyond_the_limit_are_not_timed() {
        let mut rules = Rules::default();
        for rule_id in 0..3000 {
            rules.count(rule_id, 5_000);
            rules.count(rule_id, 7_000);
        }
        let rows = rules.rows();
        assert_eq!(rows.len(), RULES_MAX);
        assert!(rows.iter().all(|(_, times)| (times.sum_us, times.latency.count()) == (12, 2)));
        rules.begin_again();
        assert!(rules.rows().is_empty());
    }
}
