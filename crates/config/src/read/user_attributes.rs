//! Reads `mysql_users.attributes`: a JSON object of what has no column of its own.

use serde_json::Value;
use weir_routing::{Consistency, TransactionSettings};

use crate::field::fields::Fields;
use crate::model::users::IsolationLevel;
use crate::read::query_rules::{
    COMMIT_OUTCOME, CONSISTENCY, REPLAY, commit_outcome, consistency, replay_mode,
};
use crate::value::password::{Password, Secret};
use crate::value::suggest::quotable;

const ATTRIBUTES_CHARS_MAX: usize = 64 << 10;
const PASSWORD_CHARS_MAX: usize = 256;
/// Names of attributes, as ProxySQL has them.
const ISOLATION: &str = "default-transaction_isolation";
const ADDITIONAL_PASSWORD: &str = "additional_password";
const SPIFFE_ID: &str = "spiffe_id";

/// The values of a user's attributes.
#[derive(Debug, Default)]
pub(crate) struct UserAttributes {
    /// The isolation level with which the user's sessions begin.
    pub isolation: Option<IsolationLevel>,
    /// With which clients may log in as well.
    pub additional_password: Option<Secret>,
    /// How fresh the reads of its sessions have to be.
    pub consistency: Option<Consistency>,
    /// What becomes of its sessions' transactions.
    pub transactions: TransactionSettings,
}

/// Reads the attributes of a user with this password.
pub(crate) fn user_attributes(f: &mut Fields<'_, '_>, password: &Password) -> UserAttributes {
    let text = f.optional_text("attributes", ATTRIBUTES_CHARS_MAX).filter(|text| !text.trim().is_empty());
    let attributes = text.map(|text| parse(&text, password)).unwrap_or_else(|| Ok(UserAttributes::default()));
    attributes.unwrap_or_else(|fault| {
        f.refuse("attributes", fault);
        UserAttributes::default()
    })
}

fn parse(text: &str, password: &Password) -> Result<UserAttributes, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|fault| quotable(&format!("is not JSON: {fault}")))?;
    let Value::Object(attributes) = value else { return Err("is not a JSON object".to_owned()) };
    let mut read = UserAttributes::default();
    for (name, value) in &attributes {
        match name.as_str() {
            ISOLATION => read.isolation = Some(isolation_level(value)?),
            ADDITIONAL_PASSWORD => read.additional_password = Some(additional_password(value, password)?),
            CONSISTENCY => read.consistency = Some(consistency(word(name, value)?)?),
            REPLAY => read.transactions.replay = Some(replay_mode(value)?),
            COMMIT_OUTCOME => read.transactions.commit_outcome = Some(commit_outcome(word(name, value)?)?),
            SPIFFE_ID => {
                return Err(format!("{name} is not built yet: Weir asks clients for no certificate"));
            }
            name => {
                let name = quotable(name);
                return Err(format!(
                    "unknown attribute \"{name}\", there are {ISOLATION}, {ADDITIONAL_PASSWORD}, {CONSISTENCY}, {REPLAY} \
                     and {COMMIT_OUTCOME}"
                ));
            }
        }
    }
    Ok(read)
}

fn word<'v>(name: &str, value: &'v Value) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| format!("{name} is not a string"))
}

/// Both passwords in clear text: whichever a client has shown, servers are shown the first.
fn additional_password(value: &Value, password: &Password) -> Result<Secret, String> {
    if !matches!(password, Password::Clear(_)) {
        return Err(format!(
            "{ADDITIONAL_PASSWORD} needs a password in clear text: Weir could not log in at servers for a client that \
             shows the additional one"
        ));
    }
    let text = value.as_str().ok_or_else(|| format!("{ADDITIONAL_PASSWORD} is not a string"))?;
    if text.is_empty() || text.chars().count() > PASSWORD_CHARS_MAX || text.contains('\0') {
        return Err(format!("{ADDITIONAL_PASSWORD} is empty, too long or contains a zero byte"));
    }
    match Password::parse(text) {
        Ok(Password::Clear(secret)) => Ok(secret),
        _ => Err(format!("{ADDITIONAL_PASSWORD} has to be in clear text")),
    }
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
