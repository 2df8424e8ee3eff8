//! Names what of a session's diagnostics only a connection knows.

bitflags::bitflags! {
    /// What of a session's diagnostics only the connection knows.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Retained: u8 {
        /// LAST_INSERT_ID(): the OK packet's id is not always it.
        const INSERT_ID = 1;
        /// Warnings, or the error.
        const WARNINGS = 1 << 1;
        /// FOUND_ROWS(), where it is not the number of the rows that were sent.
        const FOUND_ROWS = 1 << 2;
        /// When another session takes the connection, FOUND_ROWS() is lost instead of asked for.
        const UNASKED = 1 << 3;
    }
}
