//! What a client is shown of session tracking.
//!
//! Weir switches full tracking on for its own sake, so a client's `SET session_track_...` never reaches a server:
//! it only changes these preferences, and OK packets are cut down to them.

use std::borrow::Cow;

use weir_protocol::ok::SessionTrack;

/// `session_track_transaction_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionInfo {
    /// Nothing.
    #[default]
    Off,
    /// The state string.
    State,
    /// State and characteristics.
    Characteristics,
}

/// The values that the client believes its session_track variables have. The defaults are the servers'
/// (MariaDB 10.11: *Server System Variables*, session_track_*).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackPreferences {
    /// `session_track_schema`.
    pub schema: bool,
    /// `session_track_state_change`.
    pub state_change: bool,
    /// `session_track_transaction_info`.
    pub transaction_info: TransactionInfo,
    /// `session_track_gtids` (MySQL).
    pub gtids: bool,
    /// `session_track_system_variables` as given.
    pub system_variables: Cow<'static, str>,
}

impl Default for TrackPreferences {
    fn default() -> Self {
        Self {
            schema: true,
            state_change: false,
            transaction_info: TransactionInfo::Off,
            gtids: false,
            system_variables: "autocommit,character_set_client,character_set_connection,\
                               character_set_results,time_zone"
                .into(),
        }
    }
}

/// Why a `SET session_track_...` is refused, as a server would refuse it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTrackValue {
    /// MySQL error 1231.
    #[error("Variable '{name}' can't be set to the value of '{value}'")]
    WrongValue {
        /// The variable.
        name: String,
        /// What it was to be set to.
        value: String,
    },
    /// MySQL error 1193.
    #[error("Unknown system variable '{0}'")]
    UnknownVariable(String),
}

impl TrackPreferences {
    /// Sets one variable; `value` is the text of the expression in the SET statement.
    ///
    /// # Errors
    /// As a server: 1231 for a value that does not fit, 1193 for a name that it does not know.
    pub fn assign(&mut self, name: &str, value: &str) -> Result<(), BadTrackValue> {
        let word = unquote(value.trim());
        let is_default = value.trim().eq_ignore_ascii_case("default");
        let wrong = || BadTrackValue::WrongValue { name: name.into(), value: word.clone() };
        let defaults = Self::default();
        match name {
            "session_track_schema" => {
                self.schema = if is_default { defaults.schema } else { boolean(&word).ok_or_else(wrong)? };
            }
            "session_track_state_change" => {
                self.state_change =
                    if is_default { defaults.state_change } else { boolean(&word).ok_or_else(wrong)? };
            }
            "session_track_gtids" => {
                self.gtids = match word.to_ascii_uppercase().as_str() {
                    "OFF" | "0" => false,
                    "OWN_GTID" | "ALL_GTIDS" | "1" | "2" => true,
                    _ if is_default => false,
                    _ => return Err(wrong()),
                };
            }
            "session_track_transaction_info" => {
                self.transaction_info = match word.to_ascii_uppercase().as_str() {
                    "OFF" | "0" => TransactionInfo::Off,
                    "STATE" | "1" => TransactionInfo::State,
                    "CHARACTERISTICS" | "2" => TransactionInfo::Characteristics,
                    _ if is_default => TransactionInfo::Off,
                    _ => return Err(wrong()),
                };
            }
            "session_track_system_variables" => {
                self.system_variables = if is_default { defaults.system_variables } else { word.into() };
            }
            _ => return Err(BadTrackValue::UnknownVariable(name.into())),
        }
        Ok(())
    }

    /// The value that `SELECT @@name` would show, as an SQL literal.
    pub fn literal(&self, name: &str) -> Option<String> {
        let flag = |on: bool| (if on { "1" } else { "0" }).to_owned();
        Some(match name {
            "session_track_schema" => flag(self.schema),
            "session_track_state_change" => flag(self.state_change),
            "session_track_gtids" => (if self.gtids { "'OWN_GTID'" } else { "'OFF'" }).into(),
            "session_track_transaction_info" => match self.transaction_info {
                TransactionInfo::Off => "'OFF'".into(),
                TransactionInfo::State => "'STATE'".into(),
                TransactionInfo::Characteristics => "'CHARACTERISTICS'".into(),
            },
            "session_track_system_variables" => weir_sql::literal::text(&self.system_variables),
            _ => return None,
        })
    }

    /// What an OK says of an assignment to these variables, encoded: what they make the client see.
    pub fn own_tracks<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<u8> {
        let mut tracks = Vec::new();
        let mut write = |entry: SessionTrack<'_>| {
            if self.shows(&entry) {
                entry.write(&mut tracks);
            }
        };
        for name in names {
            let value = match self.literal(name).as_deref() {
                Some("1") => "ON".to_owned(),
                Some("0") => "OFF".to_owned(),
                Some(text) => unquote(text),
                None => continue,
            };
            write(SessionTrack::SystemVariable { name: name.as_bytes(), value: value.as_bytes() });
        }
        write(SessionTrack::StateChange(true));
        tracks
    }

    /// Whether the client is to see this entry of an OK packet.
    pub fn shows(&self, entry: &SessionTrack<'_>) -> bool {
        match entry {
            SessionTrack::SystemVariable { name, .. } => self.shows_variable(name),
            SessionTrack::Schema(_) => self.schema,
            SessionTrack::StateChange(_) => self.state_change,
            SessionTrack::Gtids { .. } => self.gtids,
            SessionTrack::TransactionState(_) => self.transaction_info != TransactionInfo::Off,
            SessionTrack::TransactionCharacteristics(_) => {
                self.transaction_info == TransactionInfo::Characteristics
            }
            SessionTrack::Unknown { .. } => false,
        }
    }

    fn shows_variable(&self, name: &[u8]) -> bool {
        let list = self.system_variables.trim();
        list == "*" || list.split(',').any(|wanted| wanted.trim().as_bytes().eq_ignore_ascii_case(name))
    }
}

fn boolean(word: &str) -> Option<bool> {
    match word.to_ascii_uppercase().as_str() {
        "1" | "ON" | "TRUE" => Some(true),
        "0" | "OFF" | "FALSE" => Some(false),
        _ => None,
    }
}

fn unquote(text: &str) -> String {
    let quote = match text.as_bytes() {
        [q @ (b'\'' | b'"'), .., last] if q == last => char::from(*q),
        _ => return text.into(),
    };
    let doubled = format!("{quote}{quote}");
    text[1..text.len() - 1].replace(&doubled, &quote.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_as_a_server_does() {
        let mut prefs = TrackPreferences::default();
        prefs.assign("session_track_schema", "OFF").unwrap();
        prefs.assign("session_track_transaction_info", "'STATE'").unwrap();
        prefs.assign("session_track_system_variables", "\"*\"").unwrap();
        assert!(!prefs.schema);
        assert_eq!(prefs.transaction_info, TransactionInfo::State);
        assert!(prefs.shows(&SessionTrack::SystemVariable { name: b"sql_mode", value: b"" }));
        assert_eq!(prefs.literal("session_track_transaction_info").as_deref(), Some("'STATE'"));
        let error = prefs.assign("session_track_schema", "'maybe'").unwrap_err();
        assert_eq!(error.to_string(), "Variable 'session_track_schema' can't be set to the value of 'maybe'");
        prefs.assign("session_track_schema", "default").unwrap();
        assert!(prefs.schema);
        assert!(prefs.assign("session_track_nonsense", "1").is_err());
    }

    #[test]
    fn a_list_never_leaves_its_literal() {
        let mut prefs = TrackPreferences::default();
        prefs.assign("session_track_system_variables", r"'time_zone\';drop table t; -- '").unwrap();
        let literal = prefs.literal("session_track_system_variables").unwrap();
        assert!(literal.starts_with("_utf8mb4 X'") && !literal.contains("drop"), "{literal}");
    }

    #[test]
    fn an_assignment_is_shown_as_it_asks_for() {
        let mut prefs = TrackPreferences::default();
        assert!(prefs.own_tracks(["session_track_schema"].into_iter()).is_empty());
        prefs.assign("session_track_system_variables", "'*'").unwrap();
        prefs.assign("session_track_state_change", "1").unwrap();
        let mut expected = Vec::new();
        SessionTrack::SystemVariable { name: b"session_track_state_change", value: b"ON" }
            .write(&mut expected);
        SessionTrack::StateChange(true).write(&mut expected);
        assert_eq!(prefs.own_tracks(["session_track_state_change"].into_iter()), expected);
    }

    #[test]
    fn by_default_a_client_sees_what_servers_show_by_default() {
        let prefs = TrackPreferences::default();
        assert!(prefs.shows(&SessionTrack::Schema(b"x")));
        assert!(prefs.shows(&SessionTrack::SystemVariable { name: b"time_zone", value: b"x" }));
        assert!(!prefs.shows(&SessionTrack::SystemVariable { name: b"sql_mode", value: b"x" }));
        assert!(!prefs.shows(&SessionTrack::StateChange(true)));
        assert!(!prefs.shows(&SessionTrack::TransactionState(b"T_______")));
    }
}
