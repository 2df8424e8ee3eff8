//! Compiles the patterns of all rules: each one once; what is known is taken over, and the rest is shared between the
//! processors.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use crate::QueryRule;
use crate::pattern::{Pattern, PatternFault};
use crate::rules::Rules;

/// Threads that compile: more than these would be of use only with rules beyond all measure.
const THREADS_MAX: usize = 8;
/// With fewer patterns for each thread (some 50 µs a pattern) another one is not worth its start.
const PATTERNS_PER_THREAD: usize = 128;

/// A pattern as rows give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted<'r> {
    pub text: &'r str,
    pub caseless: bool,
    /// Replacements will be made.
    pub captures: bool,
}

/// What became of them.
pub(crate) struct Patterns<'r>(HashMap<Wanted<'r>, Result<Arc<Pattern>, PatternFault>>);

impl<'r> Patterns<'r> {
    /// Compiles the patterns of `rows` that `known` has not got.
    pub(crate) fn of(rows: Vec<&'r QueryRule>, known: &'r Rules) -> Self {
        let of_row = |row: &'r QueryRule| wanted_for_digest(row).into_iter().chain(wanted_for_text(row));
        let wanted: Vec<Wanted<'r>> = rows.into_iter().flat_map(of_row).collect();
        let is_wanted: HashSet<Wanted<'r>> = wanted.iter().copied().collect();
        let mut patterns = HashMap::with_capacity(is_wanted.len());
        for rule in known.rules.iter().filter(|_| !is_wanted.is_empty()) {
            let of_digest = wanted_for_digest(&rule.row).zip(rule.match_digest.as_ref());
            let of_text = wanted_for_text(&rule.row).zip(rule.match_pattern.as_ref());
            for (known, pattern) in of_digest.into_iter().chain(of_text) {
                if let Some(wanted) = is_wanted.get(&known) {
                    patterns.insert(*wanted, Ok(pattern.clone()));
                }
            }
        }
        let mut unknown: Vec<Wanted<'r>> =
            wanted.into_iter().filter(|wanted| !patterns.contains_key(wanted)).collect();
        // Of several rules with the same pattern most stand together.
        unknown.dedup();
        patterns.extend(compile_all(&unknown));
        Self(patterns)
    }

    /// The pattern of `match_digest`, if the row has one.
    pub(crate) fn for_digest(&self, row: &'r QueryRule) -> Result<Option<Arc<Pattern>>, PatternFault> {
        self.find(wanted_for_digest(row))
    }

    /// The pattern of `match_pattern`, if the row has one.
    pub(crate) fn for_text(&self, row: &'r QueryRule) -> Result<Option<Arc<Pattern>>, PatternFault> {
        self.find(wanted_for_text(row))
    }

    fn find(&self, wanted: Option<Wanted<'r>>) -> Result<Option<Arc<Pattern>>, PatternFault> {
        wanted.and_then(|wanted| self.0.get(&wanted)).cloned().transpose()
    }
}

fn wanted_for_digest(row: &QueryRule) -> Option<Wanted<'_>> {
    let text = row.match_digest.as_deref()?;
    Some(Wanted { text, caseless: row.caseless, captures: false })
}

fn wanted_for_text(row: &QueryRule) -> Option<Wanted<'_>> {
    let text = row.match_pattern.as_deref()?;
    Some(Wanted { text, caseless: row.caseless, captures: row.replace_pattern.is_some() })
}

type Compiled<'r> = Vec<(Wanted<'r>, Result<Arc<Pattern>, PatternFault>)>;

fn compile_all<'r>(wanted: &[Wanted<'r>]) -> Compiled<'r> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    let threads = (wanted.len() / PATTERNS_PER_THREAD).clamp(1, processors);
    let share = wanted.len().div_ceil(threads).max(1);
    let (own, others) = wanted.split_at(share.min(wanted.len()));
    thread::scope(|scope| {
        // Where the system gives no thread, this one does it.
        let compile = |share: &'_ [Wanted<'r>]| {
            let share: Vec<Wanted<'r>> = share.to_vec();
            let begun = share.clone();
            let thread = thread::Builder::new().name("rules".into());
            (share, thread.spawn_scoped(scope, move || compile_some(&begun)))
        };
        let begun: Vec<_> = others.chunks(share).map(compile).collect();
        let mut compiled = compile_some(own);
        for (share, thread) in begun {
            let done = thread.ok().and_then(|thread| thread.join().ok());
            compiled.extend(done.unwrap_or_else(|| compile_some(&share)));
        }
        compiled
    })
}

fn compile_some<'r>(wanted: &[Wanted<'r>]) -> Compiled<'r> {
    let compile = |wanted: &Wanted<'r>| {
        (*wanted, Pattern::compile(wanted.text, wanted.caseless, wanted.captures).map(Arc::new))
    };
    wanted.iter().map(compile).collect()
}
