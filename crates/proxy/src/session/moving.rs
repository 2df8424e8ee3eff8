//! Names what a session takes along that leaves its server, or why it can't.

use std::sync::Arc;

use weir_session::user_variables::{Question, UserVariables};
use weir_topology::SessionVariables;

use crate::session::Session;

/// Where a session stands with that.
pub(crate) enum Moving {
    /// Its connection is asked.
    Asking(Asking),
    /// It has left its connection.
    Carried(Carried),
    /// It has to stay, for this reason.
    Stays(String),
}

/// What a connection is asked.
pub(crate) struct Asking {
    pub names: Vec<Vec<u8>>,
    pub step: Step,
    /// An error of the server's.
    pub refusal: Option<String>,
}

pub(crate) enum Step {
    /// Has a routine left locks, or a role?
    Locks,
    /// Has it made something else that can't be told?
    Made,
    /// Has it set variables that were not reported?
    Unreported(Arc<SessionVariables>),
    Names,
    Values(Question),
    /// The literals are read by the server, and nothing is set.
    Rehearsal(UserVariables),
}

/// What a session takes along.
pub(crate) struct Carried {
    /// The statement that sets it.
    pub set: Vec<u8>,
    pub names: Vec<Vec<u8>>,
    /// Where the connection was; none: where the session is at home.
    pub hostgroup: Option<u32>,
}

impl Session {
    /// What it has on no connection.
    pub(crate) fn carried(&self) -> Option<&Carried> {
        match self.moving.as_deref() {
            Some(Moving::Carried(carried)) => Some(carried),
            _ => None,
        }
    }

    /// Why it can't leave its server.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        match self.moving.as_deref() {
            Some(Moving::Stays(obstacle)) => Some(obstacle),
            _ => None,
        }
    }

    /// The obstacle was that of another connection, or of other values.
    pub(crate) fn forget_obstacle(&mut self) {
        if matches!(self.moving.as_deref(), Some(Moving::Stays(_))) {
            self.moving = None;
        }
    }

    /// The connection is gone that was asked.
    pub(crate) fn forget_questions(&mut self) {
        if matches!(self.moving.as_deref(), Some(Moving::Asking(_))) {
            self.moving = None;
        }
    }

    /// A session that is held by what it has goes with its statements where it is held, whatever the rules say: so does
    /// one that carries it.
    pub(crate) fn go_where_it_was(&mut self) {
        let Some(carried) = self.carried() else { return };
        let hostgroup = carried.hostgroup.unwrap_or(self.home_hostgroup());
        self.execution.hostgroup = hostgroup;
        self.execution.writer_only = true;
        self.execution.only_server = None;
    }
}
