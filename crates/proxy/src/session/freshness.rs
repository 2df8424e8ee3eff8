//! Holds what a session has to see, and how fresh its reads have to be: `weir_consistency` and `weir_token`.
//!
//! For a statement the first of these counts that says anything: its own first comment, the session's
//! `SET weir_consistency`, the rules, the user, the hostgroup. A rule with `gtid_from_hostgroup` raises what the last four say to
//! `session`.

use weir_protocol::error::{self, ServerError};
use weir_routing::Consistency;
use weir_session::track::Given;
use weir_sql::TOKEN;

use crate::context::Context;
use crate::keys::{Nanos, ServerIndex};
use crate::session::Session;
use crate::session::causal_token::{BadToken, CausalToken};
use crate::snapshot::History;

/// So much of a wrong value is shown.
const SHOWN_CHARS_MAX: usize = 64;

/// What it has to see.
pub(crate) struct Freshness {
    /// How fresh its reads have to be, as it has set it itself (`SET weir_consistency`).
    pub consistency: Option<Consistency>,
    /// Whatever anybody had acknowledged before this moment has to be seen: when it was told of somebody else's write
    /// (`SET weir_token`), and when its last read at level `global` came; 0 for never.
    pub told_at: Nanos,
    /// When its last read of something that others write was answered; 0 for never.
    pub seen_at: Nanos,
    /// The server that it was read from.
    pub seen_on: ServerIndex,
    /// When it might last have gone to another reader.
    pub changed_reader_at: Nanos,
    /// When the last write of this session was answered (or broke off); 0 for never.
    pub last_at: Nanos,
    /// When something of this session may last have been committed; 0 for never.
    pub last_commit_at: Nanos,
    /// The server that took the last write.
    pub last_server: ServerIndex,
}

impl Default for Freshness {
    /// Nothing has to be seen yet.
    fn default() -> Self {
        Self {
            consistency: None,
            told_at: 0,
            seen_at: 0,
            seen_on: ServerIndex::MAX,
            changed_reader_at: 0,
            last_at: 0,
            last_commit_at: 0,
            last_server: ServerIndex::MAX,
        }
    }
}

/// The part of it that SET assigns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreshnessSettings {
    pub consistency: Option<Consistency>,
    pub told_at: Nanos,
}

/// Why an assignment to one of Weir's own variables is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFreshness {
    /// The word is no level.
    #[error("Variable 'weir_consistency' can't be set to the value of '{0}' ({words})", words = words())]
    Level(String),
    /// The text is no token for this session.
    #[error("Variable 'weir_token' can't be set to the value of '{shown}': {why}")]
    Token {
        /// What it was to be set to.
        shown: String,
        /// Why not.
        why: BadToken,
    },
    /// A token is a string.
    #[error("Incorrect argument type to variable 'weir_token'")]
    TokenType,
}

impl BadFreshness {
    /// The number of the error to clients.
    pub(crate) fn code(&self) -> ServerError {
        match self {
            Self::Level(_) => error::WRONG_VALUE_FOR_VAR,
            Self::Token { .. } => BadToken::CODE,
            Self::TokenType => error::WRONG_TYPE_FOR_VAR,
        }
    }
}

/// The words that a level has, for messages.
fn words() -> String {
    let [first @ .., last] = Consistency::ALL.map(Consistency::as_str);
    format!("allowed are {} and {last}", first.join(", "))
}

impl Freshness {
    pub(crate) fn settings(&self) -> FreshnessSettings {
        FreshnessSettings { consistency: self.consistency, told_at: self.told_at }
    }

    pub(crate) fn set(&mut self, settings: FreshnessSettings) {
        FreshnessSettings { consistency: self.consistency, told_at: self.told_at } = settings;
    }

    /// The last moment at which something was acknowledged to the session: its own write, what it has read, what it was
    /// told. 0 for never.
    pub(crate) fn latest(&self) -> Nanos {
        self.last_at.max(self.seen_at).max(self.told_at)
    }

    /// A read of this server was answered, which had all that was seen before.
    pub(crate) fn see(&mut self, server: ServerIndex, now: Nanos) {
        if self.seen_on != server {
            self.changed_reader_at = now;
        }
        (self.seen_at, self.seen_on) = (now, server);
    }

    /// Another client is to use the session: what it has set itself goes back, as every variable does. What was written and
    /// seen stays, since the one that goes on may be the one that has written.
    pub(crate) fn begin(&mut self) {
        self.set(FreshnessSettings::default());
    }
}

impl Session {
    /// How fresh the read of the running statement has to be. `of_hostgroup`: as the hostgroup says from which it is split,
    /// or the statement's own.
    pub(crate) fn consistency(&self, of_hostgroup: Consistency) -> Consistency {
        let decision = self.execution.plan.decision();
        if let Some(hinted) = decision.hinted_consistency {
            return hinted;
        }
        let said = self.freshness.consistency.or(decision.consistency);
        let level = said.or_else(|| self.consistency_of_user()).unwrap_or(of_hostgroup);
        // What the session has written last, through whichever hostgroup.
        if decision.sees_own_writes { level.max(Consistency::Session) } else { level }
    }

    /// Whether only servers with a certain transaction may have its statement, as ProxySQL counts that.
    pub(crate) fn goes_by_gtid(&self) -> bool {
        let decision = self.execution.plan.decision();
        self.execution.min_gtid.is_some() || (decision.sees_own_writes && self.must_see() != 0)
    }

    /// `@@weir_consistency`: how fresh reads have to be of which neither a comment nor a rule says anything.
    pub(crate) fn default_consistency(&self, ctx: &Context) -> Consistency {
        let own = self.freshness.consistency.or_else(|| self.consistency_of_user());
        own.unwrap_or_else(|| {
            let home = ctx.snapshot.hostgroups.get(&self.home_hostgroup());
            home.map(|hostgroup| hostgroup.consistency).unwrap_or_default()
        })
    }

    fn consistency_of_user(&self) -> Option<Consistency> {
        self.account.as_ref().and_then(|account| account.user.consistency)
    }

    /// `@@weir_token`: a token for what the session has written, and read, so far. Of a session that has done neither it
    /// stands for nothing. None, which is shown as NULL, while nobody knows the history of its home hostgroup: no Weir
    /// could say later whether that has gone on. `is_to_come`: it has to hold at a later time than now, for which it
    /// has no moment of its own.
    pub(crate) fn causal_token(&self, ctx: &Context, is_to_come: bool) -> Option<CausalToken> {
        let history = self.history(ctx)?;
        let (origin, moment) = match is_to_come {
            true => (0, 0),
            false => (ctx.shared.origin, self.freshness.latest()),
        };
        Some(CausalToken { history, origin, moment })
    }

    /// The history of its home hostgroup's cluster.
    fn history(&self, ctx: &Context) -> Option<History> {
        ctx.snapshot.hostgroups.get(&self.home_hostgroup()).and_then(|hostgroup| hostgroup.history)
    }

    /// What follows from an assignment to `weir_consistency` or `weir_token`.
    ///
    /// # Errors
    /// See [`BadFreshness`].
    pub(crate) fn assign_freshness(
        &self,
        ctx: &Context,
        settings: &mut FreshnessSettings,
        name: &str,
        value: &Given,
    ) -> Result<(), BadFreshness> {
        if name == TOKEN {
            return self.assign_token(ctx, settings, value);
        }
        let level = match value {
            Given::Default => {
                settings.consistency = None;
                return Ok(());
            }
            Given::Text(word) => Consistency::of_word(word.as_bytes()),
            _ => None,
        };
        settings.consistency = Some(level.ok_or_else(|| BadFreshness::Level(shown(value)))?);
        Ok(())
    }

    fn assign_token(
        &self,
        ctx: &Context,
        settings: &mut FreshnessSettings,
        value: &Given,
    ) -> Result<(), BadFreshness> {
        let token = match value {
            Given::Default => {
                settings.told_at = 0;
                return Ok(());
            }
            Given::Text(text) => CausalToken::parse(text),
            Given::Null => Err(BadToken::Null),
            Given::Integer(_) | Given::Other => return Err(BadFreshness::TokenType),
        };
        let hostgroup = self.home_hostgroup();
        let token = token.and_then(|token| match self.history(ctx) {
            None => Err(BadToken::UnknownHistory { hostgroup }),
            Some(history) if history != token.history => Err(BadToken::OtherHistory { hostgroup }),
            Some(_) => Ok(token),
        });
        let token = token.map_err(|why| BadFreshness::Token { shown: shown(value), why })?;
        // What an earlier one stands for still has to be seen.
        settings.told_at = settings.told_at.max(token.told_at(ctx.shared.origin, ctx.now));
        Ok(())
    }
}

/// A value as messages show it, not all of a long one.
pub(crate) fn shown(value: &Given) -> String {
    let shown = value.shown();
    let end = shown.char_indices().nth(SHOWN_CHARS_MAX).map_or(shown.len(), |(at, _)| at);
    shown[..end].to_owned()
}
