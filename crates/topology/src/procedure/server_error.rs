//! Describes why a server did not do what a procedure wanted of it. What is shown here, users see.

use std::error::Error;
use std::sync::Arc;

use crate::{Endpoint, NoEndpoint};

/// An error of whoever talks with servers: no procedure looks into it.
type Cause = Arc<dyn Error + Send + Sync>;

/// Why a server did not do what was wanted of it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ServerError {
    /// It is not reached, or does not let the account in; the words name both. Nothing was asked of it. See whether it
    /// runs, and whether the account that moves roles may log in there.
    #[error("{cause}")]
    Login {
        /// The server.
        server: Endpoint,
        /// What kept the account out.
        cause: Cause,
    },
    /// It was silent for too long, its connection broke, or what came is no answer: what it was told may have been done,
    /// or still be. See whether it runs.
    #[error("{server}: {cause}")]
    NoAnswer {
        /// The server.
        server: Endpoint,
        /// What kept the answer away.
        cause: Cause,
    },
    /// It answered a statement with an error, and did not carry that one out. What is to be done, number and text tell.
    #[error("{server}: error {code} ({sqlstate}): {message}")]
    Refused {
        /// The server.
        server: Endpoint,
        /// Its error number.
        code: u16,
        /// Five characters.
        sqlstate: String,
        /// Its text.
        message: String,
    },
    /// The account may not do what a procedure needs. Grant what the text names.
    #[error("{user} lacks a privilege at {server}: {message}")]
    LacksPrivilege {
        /// The server.
        server: Endpoint,
        /// The account.
        user: String,
        /// The server's text, which names the privilege.
        message: String,
    },
    /// It has not caught up in time. Try again when it lags less.
    #[error("{server} has not applied everything within {seconds} s")]
    NotApplied {
        /// The server.
        server: Endpoint,
        /// How long was waited.
        seconds: u64,
    },
    /// It can't be compared with others. Have it log with global transaction ids.
    #[error("{server} has no global transaction ids")]
    NoPositions {
        /// The server.
        server: Endpoint,
    },
    /// Its global transaction ids are none that Weir can send back to a server, or are too many. Look at what the server
    /// shows of them.
    #[error("{server} has global transaction ids in an unknown form")]
    UnknownPositions {
        /// The server.
        server: Endpoint,
    },
    /// The journal of switchovers was changed by hand. Look at the row, and delete it if no switchover is under way.
    #[error("{server}: weir.switchovers has a row that no Weir has written: {cause}")]
    ForeignRow {
        /// The server.
        server: Endpoint,
        /// What is wrong with it.
        cause: NoEndpoint,
    },
}

impl ServerError {
    /// The account could not log in.
    pub fn login(server: &Endpoint, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Login { server: server.clone(), cause: Arc::from(cause.into()) }
    }

    /// There was no answer.
    pub fn no_answer(server: &Endpoint, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::NoAnswer { server: server.clone(), cause: Arc::from(cause.into()) }
    }
}
