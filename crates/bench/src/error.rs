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
    /// sysbench measured nothing, so nothing can be divided by its statements.
    #[error("sysbench got no answer to any statement: {0}")]
    NoStatements(String),
}

impl BenchError {
    /// For `map_err`.
    pub(crate) fn io(doing: String) -> impl FnOnce(io::Error) -> BenchError {
        move |source| BenchError::Io { doing, source }
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
