//! Writes values in the place of functions and variables that only Weir knows, so that they have the types which
//! servers give to those: CREATE TABLE ... SELECT makes the same columns of them, and drivers see the same metadata.
//!
//! Seen on MariaDB 10.11, where a number's type follows from its digits, and on MySQL 9.7. What differs: sums with ROW_COUNT()
//! and FOUND_ROWS() are one digit longer on MariaDB.

use std::fmt::Display;

/// CONNECTION_ID(): int(10) unsigned not null on MariaDB, bigint unsigned not null on MySQL.
pub(crate) fn connection_id(id: u32) -> String {
    format!("CAST({id:010} AS UNSIGNED)")
}

/// ROW_COUNT() and FOUND_ROWS(): bigint(21) not null.
pub(crate) fn count(count: impl Display) -> String {
    format!("CAST({count}|0 AS SIGNED)")
}

/// `@@pseudo_thread_id` where somebody may have set it and nobody has reported it. `own`: the connection's id at the server,
/// which CONNECTION_ID() is not then (seen on MariaDB 10.11: it is what the variable is).
pub(crate) fn thread_id(id: u32, own: u32) -> String {
    format!("IF(@@session.pseudo_thread_id = {own}, {id}, @@session.pseudo_thread_id)")
}

/// A system variable: bigint(21) unsigned, which may be null.
pub(crate) fn variable(value: impl Display) -> String {
    format!("NULLIF({value}|0,-1)")
}

/// `@@weir_consistency` and the like: text in the character set of system variables, which may be null. Letters, digits and
/// hyphens are kept.
pub(crate) fn own_variable(value: Option<impl Display>) -> String {
    let Some(value) = value else { return "CONVERT(NULL USING utf8mb3)".to_owned() };
    let plain: String =
        value.to_string().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    format!("CONVERT('{plain}' USING utf8mb3)")
}

/// `@@last_gtid`: digits and hyphens, in the character set of system variables.
pub(crate) fn gtid(value: &str) -> String {
    let plain: String = value.chars().filter(|c| c.is_ascii_digit() || *c == '-').collect();
    format!("CONVERT('{plain}' USING utf8mb3)")
}
