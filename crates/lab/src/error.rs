//! Says why there are no figures.

use std::io;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A server, a proxy or sysbench could not be started, or failed.
    #[error("{0}")]
    Server(Box<dyn std::error::Error + Send + Sync>),
    /// An operating system call failed.
    #[error("can't {doing}: {source}")]
    Io {
        /// What was tried, as in "write report.md".
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A server answered a question of ours with something else.
    #[error("{what}: {answer}")]
    Answer {
        /// What was asked.
        what: String,
        /// What came.
        answer: String,
    },
    /// A client of a load failed.
    #[error("{what}: {source}")]
    Client {
        /// What it was doing, through whom.
        what: String,
        /// Why.
        source: ClientError,
    },
    /// What is waited for has not come.
    #[error("{what} did not happen within {timeout_s} s")]
    Timeout {
        /// The awaited event.
        what: String,
        /// How long it was waited for, seconds.
        timeout_s: u64,
    },
    /// A load measured nothing, so nothing can be divided by its statements.
    #[error("no answer to any statement: {0}")]
    NoStatements(String),
    /// It needs what this machine has not.
    #[error("{0}")]
    Impossible(String),
    /// What must hold does not.
    #[error("{0}")]
    Failed(String),
}

/// Why a client of a load has failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection is gone, or never was.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An error in the server's words: code and text.
    #[error("error {0}: {1}")]
    Server(u16, String),
    /// What came is not what should come.
    #[error("{0}")]
    Protocol(String),
}

impl Error {
    /// Makes one of what the system says, for `map_err`; `doing` is what was tried.
    pub fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, source: source.into() }
    }

    /// Makes one of what a client says, for `map_err`; `what` is what it was doing.
    pub fn client(what: impl Into<String>) -> impl FnOnce(ClientError) -> Error {
        let what = what.into();
        move |source| Error::Client { what, source }
    }

    /// Makes one of a thread that has panicked, for the result of `join`.
    pub fn panicked(who: &str) -> Error {
        Error::Failed(format!("{who} has panicked"))
    }
}

impl From<weir_client::Error> for Error {
    fn from(error: weir_client::Error) -> Error {
        Error::Answer { what: "a question to a server".to_owned(), answer: error.to_string() }
    }
}

impl From<weir_client::Error> for ClientError {
    fn from(error: weir_client::Error) -> ClientError {
        match error {
            weir_client::Error::Server { code, message, .. } => ClientError::Server(code, message),
            weir_client::Error::Io { cause, .. } => ClientError::Io(cause),
            error => ClientError::Protocol(error.to_string()),
        }
    }
}
