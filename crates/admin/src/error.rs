//! Tells a client what has happened when something goes wrong.

use weir_protocol::error::{self, ServerError};

/// MySQL's limit for a message (`MYSQL_ERRMSG_SIZE`).
const MESSAGE_BYTES_MAX: usize = 512;

/// A refusal: the number, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SqlError {
    pub error: ServerError,
    pub message: String,
}

impl SqlError {
    pub(crate) fn new(error: ServerError, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            let end =
                (0..=MESSAGE_BYTES_MAX - 3).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
            message.truncate(end);
            message.push_str("...");
        }
        Self { error, message }
    }

    pub(crate) fn syntax(message: impl Into<String>) -> Self {
        Self::new(error::PARSE_ERROR, message)
    }

    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self::new(error::SPECIFIC_ACCESS_DENIED, message)
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(error::UNKNOWN_ERROR, message)
    }
}
