//! Holds values as they are written: rows, texts, secrets, and the words on what is wrong with them.

pub(crate) mod limits;
pub(crate) mod password;
pub(crate) mod rows;
pub(crate) mod scalar;
pub(crate) mod statements;
pub(crate) mod suggest;
