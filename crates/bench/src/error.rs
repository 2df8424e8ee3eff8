use std::io;

use weir_testkit::TestkitError;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A server or sysbench could not be started or failed.
    #[error("{0}")]
    Server(TestkitError),
    /// An operating system call failed.
    #[error("can't {doing}: {source}")]
    Io {
        /// What was tried, as in "write x.json".
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The load generator measured nothing, so nothing can be divided by its statements.
    #[error("no answer to any statement: {0}")]
    NoStatements(String),
    /// A client of our own failed.
    #[error("{what}: {source}")]
    Client {
        /// What it was doing, through whom.
        what: String,
        /// Why.
        source: ClientError,
    },
    /// This machine is too small for the row.
    #[error("{0}")]
    Limit(String),
    /// No certificates, no TLS.
    #[error("certificates can't be made: {0}")]
    Certificate(rcgen::Error),
    /// The certificates are of no use.
    #[error("TLS can't be set up: {0}")]
    Tls(rustls::Error),
}

/// Why a client of our own has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
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

impl BenchError {
    /// For `map_err`.
    pub(crate) fn io(doing: String) -> impl FnOnce(io::Error) -> BenchError {
        move |source| BenchError::Io { doing, source }
    }

    /// For `map_err`.
    pub(crate) fn client(what: impl Into<String>) -> impl FnOnce(ClientError) -> BenchError {
        let what = what.into();
        move |source| BenchError::Client { what, source }
    }
}

impl From<TestkitError> for BenchError {
    fn from(error: TestkitError) -> BenchError {
        match error {
            TestkitError::Cancelled => BenchError::Interrupted,
            error => BenchError::Server(error),
        }
    }
}
