use std::io;

use weir_testkit::TestkitError;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FailoverError {
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A server, a proxy or sysbench could not be started, or failed.
    #[error("{0}")]
    Server(TestkitError),
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
    /// What a scenario waits for has not come.
    #[error("{what} did not happen within {timeout_s} s")]
    Timeout {
        /// The awaited event.
        what: String,
        /// How long it was waited for, seconds.
        timeout_s: u64,
    },
    /// The scenario needs what this machine has not.
    #[error("{0}")]
    Impossible(String),
}

impl FailoverError {
    /// For `map_err`.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> FailoverError {
        let doing = doing.into();
        move |source| FailoverError::Io { doing, source }
    }
}

impl From<TestkitError> for FailoverError {
    fn from(error: TestkitError) -> FailoverError {
        match error {
            TestkitError::Cancelled => FailoverError::Interrupted,
            error => FailoverError::Server(error),
        }
    }
}

impl From<weir_client::Error> for FailoverError {
    fn from(error: weir_client::Error) -> FailoverError {
        FailoverError::Answer { what: "a question to a server".to_owned(), answer: error.to_string() }
    }
}
