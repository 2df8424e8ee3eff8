//! Holds who says what becomes of a session's transactions: `weir_replay` and `weir_commit_outcome`.
//!
//! For each of the two the first of these counts that says anything: the first comment of the statement that begins the
//! transaction, the session's SET, the rules that match that statement, the user, the hostgroup. It is asked for once, when
//! the transaction begins: one that is half logged could not run again, and a row that is taken late is of no use.

use weir_protocol::error::{self, ServerError};
use weir_routing::{CommitOutcome, ReplayMode, TransactionSettings};
use weir_session::track::Given;
use weir_sql::REPLAY;

use crate::context::Context;
use crate::session::Session;
use crate::session::freshness::shown;
use crate::snapshot::Hostgroup;

/// Why an assignment is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTransactionSetting {
    #[error("Variable 'weir_replay' can't be set to the value of '{0}' (allowed are ON, SAFE and OFF)")]
    Replay(String),
    #[error("Variable 'weir_commit_outcome' can't be set to the value of '{0}' (allowed are off and marker)")]
    CommitOutcome(String),
}

impl BadTransactionSetting {
    /// The number of the error to clients.
    pub(crate) const CODE: ServerError = error::WRONG_VALUE_FOR_VAR;
}

impl Session {
    /// What anybody but its hostgroup says of the transaction that its statement begins.
    pub(crate) fn said_of_transaction(&self) -> TransactionSettings {
        let decision = self.execution.plan.decision();
        let said = decision.hinted_transactions.or(self.transaction.own).or(decision.transactions);
        said.or(self.transactions_of_user())
    }

    fn transactions_of_user(&self) -> TransactionSettings {
        self.account.as_ref().map(|account| account.user.transactions).unwrap_or_default()
    }

    /// `@@weir_replay`: whether transactions run again of which neither a comment nor a rule says anything.
    pub(crate) fn default_replay(&self, ctx: &Context) -> ReplayMode {
        let said = self.transaction.own.or(self.transactions_of_user()).replay;
        said.unwrap_or_else(|| self.home(ctx).map_or(ReplayMode::Off, |home| home.transaction_replay))
    }

    /// `@@weir_commit_outcome`: how the end of such a transaction's COMMIT is found out.
    pub(crate) fn default_commit_outcome(&self, ctx: &Context) -> CommitOutcome {
        let said = self.transaction.own.or(self.transactions_of_user()).commit_outcome;
        said.unwrap_or_else(|| match self.home(ctx).is_some_and(|home| home.marks_commits) {
            true => CommitOutcome::Marker,
            false => CommitOutcome::Off,
        })
    }

    fn home<'c>(&self, ctx: &'c Context) -> Option<&'c Hostgroup> {
        ctx.snapshot.hostgroups.get(&self.home_hostgroup())
    }
}

/// What follows from an assignment to `weir_replay` or `weir_commit_outcome`.
///
/// # Errors
/// See [`BadTransactionSetting`].
pub(crate) fn assign(
    settings: &mut TransactionSettings,
    name: &str,
    value: &Given,
) -> Result<(), BadTransactionSetting> {
    if name == REPLAY {
        settings.replay = match value {
            Given::Default => None,
            Given::Text(_) | Given::Integer(_) => {
                let mode = ReplayMode::of_word(value.shown().as_bytes());
                Some(mode.ok_or_else(|| BadTransactionSetting::Replay(shown(value)))?)
            }
            Given::Null | Given::Other => return Err(BadTransactionSetting::Replay(shown(value))),
        };
        return Ok(());
    }
    settings.commit_outcome = match value {
        Given::Default => None,
        Given::Text(word) => {
            let outcome = CommitOutcome::of_word(word.as_bytes());
            Some(outcome.ok_or_else(|| BadTransactionSetting::CommitOutcome(shown(value)))?)
        }
        _ => return Err(BadTransactionSetting::CommitOutcome(shown(value))),
    };
    Ok(())
}
