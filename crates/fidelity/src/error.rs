use weir_testkit::TestkitError;

/// Why there is no matrix.
#[derive(Debug, thiserror::Error)]
pub enum FidelityError {
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A server or a Weir could not be started, or went away.
    #[error("{0}")]
    Server(TestkitError),
    /// A statement that only prepares a cell, or looks after it, was not answered as it must be.
    #[error("{sql}: {answer}")]
    Answer {
        /// The statement.
        sql: String,
        /// What came.
        answer: String,
    },
    /// An operating system call failed.
    #[error("can't {doing}: {source}")]
    Io {
        /// What was tried, as in "write matrix.json".
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// What was asked for is not there.
    #[error("{0}")]
    Options(String),
}

impl FidelityError {
    /// Says which cell it was.
    pub(crate) fn during(self, cell: &str) -> FidelityError {
        match self {
            FidelityError::Interrupted => self,
            error => FidelityError::Answer { sql: cell.to_owned(), answer: error.to_string() },
        }
    }
}

impl From<TestkitError> for FidelityError {
    fn from(error: TestkitError) -> FidelityError {
        match error {
            TestkitError::Cancelled => FidelityError::Interrupted,
            error => FidelityError::Server(error),
        }
    }
}
