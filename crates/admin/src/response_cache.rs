//! Keeps answers about statistics for a crowd of dashboards: what was made for one session is given to others, too.
//!
//! With few sessions each answer is as of its statement's arrival. Where many are connected, an answer may be
//! [`SHARED_FOR`] old, but never older than what an admin last did (LOAD, a reset, KILL): who changes something sees it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::login::Rights;
use crate::reply::{RowFormat, Rows};

/// With more sessions than this they are a crowd.
pub(crate) const CROWD_MIN: usize = 16;
/// How old what a crowd is given may be.
const SHARED_FOR: Duration = Duration::from_millis(500);
/// Answers that are kept.
const ANSWERS_MAX: usize = 64;
/// A larger answer is made for each who asks.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A question, with everything that its answer depends on besides the tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    text: String,
    rights: Rights,
    format: RowFormat,
}

impl Question {
    /// None: its answer may be another one for each who asks, as functions tell who that is and what time it is.
    pub(crate) fn of(text: &str, rights: Rights, format: RowFormat) -> Option<Self> {
        (!text.contains(['(', '?', '@'])).then(|| Self { text: text.to_owned(), rights, format })
    }
}

/// The answers that are shared, by question.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache {
    answers: HashMap<Question, (Instant, Arc<Rows>)>,
    /// When an admin's command that may change what is shown ended.
    changed_at: Option<Instant>,
}

impl ResponseCache {
    /// From when on what was seen may be given to who asks at this time; `is_crowd`: among many.
    pub(crate) fn oldest(&self, asked: Instant, is_crowd: bool) -> Instant {
        let shared = if is_crowd { asked.checked_sub(SHARED_FOR).unwrap_or(asked) } else { asked };
        self.changed_at.map_or(shared, |changed_at| shared.max(changed_at))
    }

    /// The answer that another one of the crowd has got a moment ago.
    pub(crate) fn find(&self, question: &Question, asked: Instant) -> Option<Arc<Rows>> {
        let (at, rows) = self.answers.get(question)?;
        (*at >= self.oldest(asked, true)).then(|| rows.clone())
    }

    /// Keeps an answer of tables that were read at `at` at the earliest.
    pub(crate) fn insert(&mut self, question: Question, at: Instant, rows: &Arc<Rows>) {
        let oldest = self.oldest(Instant::now(), true);
        self.answers.retain(|_, (at, _)| *at >= oldest);
        if self.answers.len() < ANSWERS_MAX && rows.bytes().len() <= ANSWER_BYTES_MAX {
            self.answers.insert(question, (at, rows.clone()));
        }
    }

    /// Something has been changed: nothing that was seen before counts.
    pub(crate) fn clear(&mut self) {
        self.answers.clear();
        self.changed_at = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Memory;

    #[test]
    fn answers_are_shared_for_a_while_and_not_beyond_a_change() {
        let mut response_cache = ResponseCache::default();
        let question = Question::of("SELECT * FROM stats_mysql_global", Rights::Stats, RowFormat::Text);
        let question = question.expect("one for the cache");
        let rows = Arc::new(Rows::new(vec!["a".to_owned()], RowFormat::Text, Memory::default().budget()));
        let made = Instant::now();
        response_cache.insert(question.clone(), made, &rows);
        assert!(response_cache.find(&question, made + SHARED_FOR).is_some());
        assert!(response_cache.find(&question, made + SHARED_FOR + Duration::from_millis(1)).is_none());
        let other = Question { rights: Rights::Admin, ..question.clone() };
        assert!(response_cache.find(&other, made).is_none());
        response_cache.clear();
        assert!(response_cache.find(&question, made).is_none());
        // One that was begun before the change and ends after it.
        response_cache.insert(question.clone(), made, &rows);
        assert!(response_cache.find(&question, Instant::now()).is_none());
    }

    #[test]
    fn who_asks_alone_gets_nothing_that_is_older_than_the_question() {
        let (response_cache, asked) = (ResponseCache::default(), Instant::now());
        assert_eq!(response_cache.oldest(asked, false), asked);
        assert_eq!(response_cache.oldest(asked, true), asked - SHARED_FOR);
    }

    #[test]
    fn what_depends_on_who_asks_is_not_cached() {
        for text in
            ["SELECT CONNECTION_ID()", "SELECT * FROM stats_mysql_users WHERE username = ?", "SELECT @@x"]
        {
            assert_eq!(Question::of(text, Rights::Admin, RowFormat::Text), None, "{text}");
        }
    }
}
