//! `mysql_users.attributes`: a JSON object of what has no column of its own.

use serde_json::Value;

use crate::fields::{Fields, quotable};
use crate::types::IsolationLevel;

const ATTRIBUTES_CHARS_MAX: usize = 64 << 10;
/// The only attribute that is built, with ProxySQL's name.
const ISOLATION: &str = "default-transaction_isolation";
/// Attributes that ProxySQL has as well.
const NOT_BUILT: [&str; 2] = ["spiffe_id", "additional_password"];

/// The isolation level with which the user's sessions begin, if the attributes name one.
pub(crate) fn user_attributes(f: &mut Fields<'_, '_>) -> Option<IsolationLevel> {
    let text = f.optional_text("attributes", ATTRIBUTES_CHARS_MAX).filter(|text| !text.trim().is_empty())?;
    parse(&text).unwrap_or_else(|fault| {
        f.refuse("attributes", fault);
        None
    })
}

fn parse(text: &str) -> Result<Option<IsolationLevel>, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|fault| quotable(&format!("is not JSON: {fault}")))?;
    let Value::Object(attributes) = value else { return Err("is not a JSON object".to_owned()) };
    let mut level = None;
    for (name, value) in &attributes {
        match name.as_str() {
            ISOLATION => level = Some(isolation_level(value)?),
            name if NOT_BUILT.contains(&name) => return Err(format!("{name} is not built yet")),
            name => return Err(format!("unknown attribute \"{}\", there is {ISOLATION}", quotable(name))),
        }
    }
    Ok(level)
}

/// A level in SQL's words or as servers show it, in any case.
fn isolation_level(value: &Value) -> Result<IsolationLevel, String> {
    let word = value.as_str().unwrap_or_default().replace(' ', "-").to_ascii_uppercase();
    let levels = [
        IsolationLevel::ReadUncommitted,
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ];
    levels.into_iter().find(|level| level.as_str() == word).ok_or_else(|| {
        format!(
            "{ISOLATION} is none of \"READ UNCOMMITTED\", \"READ COMMITTED\", \"REPEATABLE READ\" and \"SERIALIZABLE\""
        )
    })
}
