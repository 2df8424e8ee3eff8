//! Compiles rows into rules: patterns, order, and which facts they ask for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::pattern::{Pattern, PatternFault};
use crate::patterns::Patterns;
use crate::prefilter::Needles;
use crate::replacement::Replacement;
use crate::{FastRoute, FlagWeight, HintOrder, QueryRule};

/// The most active rules: their positions have 16 bits.
pub const ACTIVE_RULES_MAX: usize = u16::MAX as usize;

/// Settings that are variables of ProxySQL's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// mysql-query_processor_iterations: how often a flagOUT may lead back to the first rule. 0: the chains are
    /// walked forward only.
    pub iterations: u32,
    /// mysql-query_processor_first_comment_parsing.
    pub hint_order: HintOrder,
}

/// A fault of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFault {
    /// Position of the row among those given.
    pub row: usize,
    /// The column.
    pub column: &'static str,
    /// What is wrong.
    pub reason: String,
}

/// A pattern that is not the regex crate's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternNote {
    /// The rule.
    pub rule_id: u32,
    /// `match_digest` or `match_pattern`.
    pub column: &'static str,
    /// What is in the pattern.
    pub because: &'static str,
}

type UserAndSchema = (Box<[u8]>, Box<[u8]>);

/// The compiled rules of a configuration: shared and immutable. Inactive rows are checked and left out.
#[derive(Debug, Default)]
pub struct Rules {
    pub(crate) rules: Vec<Arc<Rule>>,
    /// By user and schema: flag and destination.
    fast: HashMap<UserAndSchema, Vec<(u32, u32)>>,
    pub(crate) options: Options,
    pub(crate) facts: FactsUsed,
    pub(crate) needles: Needles,
    notes: Vec<PatternNote>,
}

/// Rules that were made of the same rows are the same.
impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.rules.len() == other.rules.len()
            && self.options == other.options
            && self
                .rules
                .iter()
                .zip(&other.rules)
                .all(|(one, another)| Arc::ptr_eq(one, another) || one.row == another.row)
            && self.fast == other.fast
    }
}

impl Eq for Rules {}

/// The facts of a session that some rule asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FactsUsed {
    pub username: bool,
    pub schemaname: bool,
    pub client_addr: bool,
    pub proxy: bool,
}

/// A row, compiled.
#[derive(Debug)]
pub(crate) struct Rule {
    pub row: Arc<QueryRule>,
    pub match_digest: Option<Arc<Pattern>>,
    pub match_pattern: Option<Arc<Pattern>>,
    pub replacement: Option<Replacement>,
    pub weight_sum: u64,
}

impl Rules {
    /// Compiles active rows, in order of rule_id, and the rows of fast routing.
    ///
    /// # Errors
    /// Every fault of a row, inactive ones included; `row` counts query rules only.
    pub fn compile(
        rows: &[QueryRule],
        fast: &[FastRoute],
        options: Options,
    ) -> Result<Arc<Self>, Vec<RuleFault>> {
        let rows: Vec<_> = rows.iter().cloned().map(Arc::new).collect();
        Self::compile_after(&Self::default(), &rows, fast, options)
    }

    /// [`Rules::compile`], with the rules and patterns that `before` has, too, taken over from there. It is quickest for
    /// rows that are shared with `before`.
    ///
    /// # Errors
    /// As [`Rules::compile`].
    pub fn compile_after(
        before: &Self,
        rows: &[Arc<QueryRule>],
        fast: &[FastRoute],
        options: Options,
    ) -> Result<Arc<Self>, Vec<RuleFault>> {
        let mut faults = Vec::new();
        let mut rules = Self { options, ..Self::default() };
        // Where they are in order, which they mostly are, none is there twice.
        let is_ordered = rows.is_sorted_by(|one, next| one.rule_id < next.rule_id);
        let mut seen = HashSet::new();
        let mut next = 0;
        let known: Vec<Option<&Arc<Rule>>> = rows.iter().map(|row| before.same(row, &mut next)).collect();
        let unknown = rows.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(row, _)| &**row);
        let patterns = Patterns::of(unknown.collect(), before);
        for (at, (row, known)) in rows.iter().zip(known).enumerate() {
            let fault = |column, reason| RuleFault { row: at, column, reason };
            if !is_ordered && !seen.insert(row.rule_id) {
                faults.push(fault("rule_id", format!("{} is already there", row.rule_id)));
            }
            let compiled =
                known.map_or_else(|| Rule::compile(row, &patterns).map(Arc::new), |rule| Ok(rule.clone()));
            match compiled {
                Ok(_) if row.active && rules.rules.len() == ACTIVE_RULES_MAX => {
                    faults.push(fault("active", format!("more than {ACTIVE_RULES_MAX} rules are active")));
                }
                Ok(rule) if row.active => {
                    rules.notes.extend(rule.notes());
                    rules.rules.push(rule);
                }
                Ok(_) => {}
                Err((column, reason)) => faults.push(fault(column, reason)),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        rules.rules.sort_by_key(|rule| rule.row.rule_id);
        for route in fast {
            let key = (route.username.as_bytes().into(), route.schemaname.as_bytes().into());
            rules.fast.entry(key).or_default().push((route.flag_in, route.destination_hostgroup));
        }
        rules.facts = rules.facts_used();
        rules.needles = Needles::of(&rules.rules, &before.needles, &before.rules);
        Ok(Arc::new(rules))
    }

    /// Nothing is asked, nothing is said.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.fast.is_empty()
    }

    /// Patterns that PCRE2 tries, by rule.
    pub fn notes(&self) -> &[PatternNote] {
        &self.notes
    }

    /// The ids of the active rules, in order.
    pub fn rule_ids(&self) -> impl Iterator<Item = u32> {
        self.rules.iter().map(|rule| rule.row.rule_id)
    }

    /// The fast routes of a user in a schema, as flags and destinations: the user's own before anybody's.
    pub(crate) fn fast_routes(&self, username: &[u8], schemaname: &[u8]) -> Box<[(u32, u32)]> {
        let of =
            |user: &[u8]| self.fast.get(&(user.into(), schemaname.into())).into_iter().flatten().copied();
        of(username).chain(of(b"")).collect()
    }

    /// The rule that was made of the same row. Mostly it is the `next` one.
    fn same(&self, row: &Arc<QueryRule>, next: &mut usize) -> Option<&Arc<Rule>> {
        let is_next = self.rules.get(*next).is_some_and(|rule| rule.row.rule_id == row.rule_id);
        let at = match is_next {
            true => *next,
            false => self.rules.binary_search_by_key(&row.rule_id, |rule| rule.row.rule_id).ok()?,
        };
        *next = at + 1;
        self.rules.get(at).filter(|rule| rule.row == *row)
    }

    fn facts_used(&self) -> FactsUsed {
        let is_fast = !self.fast.is_empty();
        let mut facts = FactsUsed { username: is_fast, schemaname: is_fast, ..FactsUsed::default() };
        for row in self.rules.iter().map(|rule| &rule.row) {
            facts.username |= row.username.is_some();
            facts.schemaname |= row.schemaname.is_some();
            facts.client_addr |= row.client_addr.is_some();
            facts.proxy |= row.proxy_addr.is_some() || row.proxy_port.is_some();
        }
        facts
    }
}

impl Rule {
    fn compile<'r>(row: &'r Arc<QueryRule>, patterns: &Patterns<'r>) -> Result<Self, (&'static str, String)> {
        let of = |column| move |fault: PatternFault| (column, fault.to_string());
        let match_digest = patterns.for_digest(row).map_err(of("match_digest"))?;
        let match_pattern = patterns.for_text(row).map_err(of("match_pattern"))?;
        let replacement = match (&row.replace_pattern, &match_pattern) {
            (None, _) => None,
            (Some(_), None) => {
                return Err(("replace_pattern", "needs match_pattern: there is nothing to replace".into()));
            }
            (Some(_), _) if row.negate_match_pattern => {
                let reason = "with negate_match_pattern there is nothing to replace";
                return Err(("replace_pattern", reason.into()));
            }
            (Some(text), Some(pattern)) => Some(
                Replacement::parse(text, pattern.groups())
                    .map_err(|fault| ("replace_pattern", fault.to_string()))?,
            ),
        };
        let weight_sum = row.flag_outs.iter().map(|flag| u64::from(flag.weight)).sum();
        if !row.flag_outs.is_empty() && weight_sum == 0 {
            return Err(("attributes", "the weights of flagOUTs are all 0".into()));
        }
        Ok(Self { row: without_empty(row), match_digest, match_pattern, replacement, weight_sum })
    }

    /// Its patterns that PCRE2 tries.
    fn notes(&self) -> impl Iterator<Item = PatternNote> {
        let note = |column, pattern: &Option<Arc<Pattern>>| {
            let because = pattern.as_ref()?.obstacle()?;
            Some(PatternNote { rule_id: self.row.rule_id, column, because })
        };
        note("match_digest", &self.match_digest).into_iter().chain(note("match_pattern", &self.match_pattern))
    }

    /// The chain that `draw`, any number, stands for.
    pub(crate) fn weighted_flag(&self, draw: u64) -> Option<u32> {
        let mut left = draw.checked_rem(self.weight_sum)?;
        for FlagWeight { id, weight } in &self.row.flag_outs {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return Some(*id),
            }
        }
        None
    }
}

/// Empty names and addresses ask for nothing.
fn without_empty(row: &Arc<QueryRule>) -> Arc<QueryRule> {
    let names = [&row.username, &row.schemaname, &row.client_addr, &row.proxy_addr];
    if names.into_iter().flatten().all(|name| !name.is_empty()) {
        return row.clone();
    }
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    Arc::new(QueryRule {
        username: filled(&row.username),
        schemaname: filled(&row.schemaname),
        client_addr: filled(&row.client_addr),
        proxy_addr: filled(&row.proxy_addr),
        ..QueryRule::clone(row)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rule_id: u32, pattern: &str) -> QueryRule {
        QueryRule { rule_id, active: true, match_digest: Some(pattern.into()), ..QueryRule::default() }
    }

    fn pattern(rules: &Rules, at: usize) -> &Arc<Pattern> {
        rules.rules[at].match_digest.as_ref().expect("a pattern")
    }

    #[test]
    fn patterns_that_are_known_are_not_compiled_again() {
        let before =
            Rules::compile(&[row(1, "^a"), row(2, "(?=b)")], &[], Options::default()).expect("rules");
        // The same patterns under other numbers, and one that is new.
        let rows = [row(7, "(?=b)"), row(8, "^c"), row(9, "^a")].map(Arc::new);
        let after = Rules::compile_after(&before, &rows, &[], Options::default()).expect("rules");
        assert!(Arc::ptr_eq(pattern(&before, 1), pattern(&after, 0)));
        assert!(Arc::ptr_eq(pattern(&before, 0), pattern(&after, 2)));
        assert_eq!(
            after.notes(),
            [PatternNote { rule_id: 7, column: "match_digest", because: "look-ahead" }]
        );
        let caseful = QueryRule { caseless: false, ..row(1, "^a") };
        let after =
            Rules::compile_after(&before, &[Arc::new(caseful)], &[], Options::default()).expect("rules");
        assert!(!Arc::ptr_eq(pattern(&before, 0), pattern(&after, 0)));
    }

    #[test]
    fn many_rules_are_compiled_in_parts_and_every_fault_is_found() {
        let mut rows: Vec<_> = (0..1000).map(|at| row(at, &format!("^t{at} "))).collect();
        for at in [3, 500, 999] {
            rows[at].match_digest = Some(format!("({at}"));
        }
        let faults = Rules::compile(&rows, &[], Options::default()).expect_err("faults");
        assert_eq!(faults.iter().map(|fault| fault.row).collect::<Vec<_>>(), [3, 500, 999]);
        rows.retain(|row| row.match_digest.as_deref().is_some_and(|text| !text.starts_with('(')));
        let rules = Rules::compile(&rows, &[], Options::default()).expect("rules");
        assert_eq!(pattern(&rules, 996).is_match(b"t998 x"), Ok(true));
    }

    #[test]
    fn no_rule_is_left_out_unsaid() {
        let rows: Vec<_> = (0..=ACTIVE_RULES_MAX as u32)
            .map(|rule_id| QueryRule { rule_id, active: true, ..QueryRule::default() })
            .collect();
        let faults = Rules::compile(&rows, &[], Options::default()).expect_err("a fault");
        assert_eq!((faults.len(), faults[0].row), (1, ACTIVE_RULES_MAX));
        assert_eq!(faults[0].reason, "more than 65535 rules are active");
        Rules::compile(&rows[1..], &[], Options::default()).expect("so many are possible");
    }
}
