//! Holds what a `SET session_track_...` is to change of what the client is shown.

use std::collections::HashSet;

use weir_protocol::error::ServerError;
use weir_routing::TransactionSettings;
use weir_session::pin::Pins;
use weir_session::track::{Given, TrackPreferences};
use weir_sql::{COMMIT_OUTCOME, REPLAY};

use crate::context::Context;
use crate::session::Session;
use crate::session::freshness::FreshnessSettings;
use crate::session::transaction_settings::{self, BadTransactionSetting};

/// A `SET session_track_...`, or one of Weir's own variables, that is being carried out.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    pub items: Vec<Item>,
    /// What the statement sets otherwise.
    pub rest: Option<Vec<u8>>,
    /// Names that the server was asked about.
    pub asked: Option<HashSet<String>>,
    /// Columns of the answer that is coming, and its packets.
    pub columns: usize,
    pub answer: Vec<u8>,
    /// What held before, while the rest runs.
    pub before: Option<Before>,
}

/// What such a statement changes, as it was.
#[derive(Debug)]
pub(crate) struct Before {
    pub track: Option<Box<TrackPreferences>>,
    pub own: OwnSettings,
}

/// What its SETs of Weir's own variables say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSettings {
    pub freshness: FreshnessSettings,
    pub transactions: TransactionSettings,
}

#[derive(Debug)]
pub(crate) struct Item {
    pub name: String,
    pub expression: Vec<u8>,
    /// None: the server has to evaluate it.
    pub value: Option<Given>,
}

impl Session {
    /// Whether code whose doing nobody knows has run on the session's connection, which it holds for that reason.
    pub(crate) fn is_opaque(&self) -> bool {
        self.lease().is_some() && self.pins.pins().intersects(Pins::OPAQUE)
    }

    /// What was to hold from now on was set together with something that the server has refused.
    pub(crate) fn undo_tracking(&mut self) {
        if let Some(before) = self.execution.tracking.take().and_then(|tracking| tracking.before) {
            self.track = before.track;
            self.set_own(before.own);
        }
    }

    pub(crate) fn own_settings(&self) -> OwnSettings {
        OwnSettings { freshness: self.freshness.settings(), transactions: self.transaction.own }
    }

    pub(crate) fn set_own(&mut self, own: OwnSettings) {
        self.freshness.set(own.freshness);
        self.transaction.own = own.transactions;
    }

    /// What follows from an assignment to one of Weir's own variables.
    pub(crate) fn assign_own(
        &self,
        ctx: &Context,
        own: &mut OwnSettings,
        name: &str,
        value: &Given,
    ) -> Result<(), (ServerError, String)> {
        if [REPLAY, COMMIT_OUTCOME].contains(&name) {
            let assigned = transaction_settings::assign(&mut own.transactions, name, value);
            return assigned.map_err(|error| (BadTransactionSetting::CODE, error.to_string()));
        }
        let assigned = self.assign_freshness(ctx, &mut own.freshness, name, value);
        assigned.map_err(|error| (error.code(), error.to_string()))
    }
}
