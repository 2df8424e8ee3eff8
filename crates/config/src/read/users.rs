//! Reads the rows of users.

use crate::field::fields::{Fields, Row};
use crate::model::users::MysqlUser;
use crate::read::user_attributes::user_attributes;
use crate::report::error::Report;
use crate::value::limits::{COMMENT_CHARS_MAX, PASSWORD_BYTES_MAX, SCHEMA_CHARS_MAX, USERNAME_CHARS_MAX};
use crate::value::password::{Password, Secret};

pub(crate) fn user(row: &Row<'_>, report: &mut Report) -> Option<MysqlUser> {
    let mut f = Fields::of(row, report);
    let username = f.optional_text("username", USERNAME_CHARS_MAX);
    if username.as_deref() == Some("") {
        f.refuse("username", "is empty");
    }
    if !f.has("username") {
        f.refuse("username", "is missing");
    }
    let written = f.secret_text("password", PASSWORD_BYTES_MAX).unwrap_or_default();
    let password = Password::parse(&written).unwrap_or_else(|fault| {
        f.refuse("password", fault);
        Password::Clear(Secret::new(""))
    });
    let active = f.flag("active");
    let use_ssl = f.flag("use_ssl");
    let default_hostgroup = f.number("default_hostgroup");
    let default_schema = f.optional_text("default_schema", SCHEMA_CHARS_MAX).filter(|name| !name.is_empty());
    let max_connections = f.number("max_connections");
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    for name in ["frontend", "backend"] {
        f.only_default(name);
    }
    let transaction_persistent = f.flag("transaction_persistent");
    let schema_locked = f.flag("schema_locked");
    let fast_forward = f.flag("fast_forward");
    let attributes = user_attributes(&mut f, &password);
    f.finish_row();
    let username = username.filter(|name| !name.is_empty())?;
    Some(MysqlUser {
        username,
        password,
        active,
        use_ssl,
        default_hostgroup,
        default_schema,
        schema_locked,
        fast_forward,
        transaction_persistent,
        default_isolation: attributes.isolation,
        consistency: attributes.consistency,
        transactions: attributes.transactions,
        additional_password: attributes.additional_password,
        max_connections,
        comment,
    })
}
