//! Shows a client the session tracking that it has asked for.
//!
//! Weir switches full tracking on for its own sake, so a client's `SET session_track_...` never reaches a server:
//! it only changes these preferences, and OK packets are cut down to them. What it may assign, and what a server says to
//! anything else, was measured on MariaDB 10.11 and MySQL 9.7.

use std::borrow::Cow;
use std::collections::BTreeSet;

use weir_protocol::ok::SessionTrack;
use weir_sql::{Dialect, Family, Lexer, TokenKind};

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

/// `session_track_gtids` (MySQL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gtids {
    /// None.
    #[default]
    Off,
    /// Those of the session's own writes.
    Own,
    /// All that the server has.
    All,
}

/// The values that the client believes its session_track variables have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackPreferences {
    family: Family,
    /// `session_track_schema`.
    pub schema: bool,
    /// `session_track_state_change`.
    pub state_change: bool,
    /// `session_track_transaction_info`.
    pub transaction_info: TransactionInfo,
    /// `session_track_gtids`.
    pub gtids: Gtids,
    /// `session_track_system_variables` as the server shows it; none for NULL (MySQL).
    pub system_variables: Option<Cow<'static, str>>,
}

/// The name of the one variable with a list.
pub const SYSTEM_VARIABLES: &str = "session_track_system_variables";

/// The value that a SET assigns to a variable, as far as it matters to one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// DEFAULT
    Default,
    /// NULL
    Null,
    /// A number without a fraction.
    Integer(i128),
    /// A string, or a bare word.
    Text(String),
    /// A value of another type.
    Other,
}

impl Given {
    /// What the text of an expression says by itself: a word, a number, a plain string. None if only the server knows.
    pub fn of_literal(text: &[u8], dialect: Dialect) -> Option<Self> {
        let mut lexer = Lexer::new(text, dialect);
        let token = lexer.token();
        let source = std::str::from_utf8(text.get(token.range())?).ok()?;
        let is_alone = lexer.token().kind == TokenKind::End && !lexer.flaws().malformed;
        if !is_alone || lexer.flaws().executable_comment {
            return None;
        }
        match token.kind {
            TokenKind::Word => Some(match source.to_ascii_uppercase().as_str() {
                "DEFAULT" => Self::Default,
                "NULL" => Self::Null,
                "TRUE" => Self::Integer(1),
                "FALSE" => Self::Integer(0),
                _ => Self::Text(source.to_owned()),
            }),
            TokenKind::Number => source.parse().ok().map(Self::Integer),
            TokenKind::Text => {
                let inner = source.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let inner =
                    inner.or_else(|| source.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')))?;
                let is_plain = inner.is_ascii() && !inner.contains(['\\', '\'', '"']);
                is_plain.then(|| Self::Text(inner.to_owned()))
            }
            _ => None,
        }
    }

    /// As messages show it.
    pub fn shown(&self) -> String {
        match self {
            Self::Null => "NULL".to_owned(),
            Self::Integer(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Default | Self::Other => String::new(),
        }
    }

    /// The position of a value among names, by its name or its number.
    fn position(&self, names: &[&str]) -> Option<usize> {
        match self {
            Self::Integer(number) => usize::try_from(*number).ok().filter(|number| *number < names.len()),
            Self::Text(text) => names.iter().position(|name| name.eq_ignore_ascii_case(text)),
            _ => None,
        }
    }
}

/// Why a `SET session_track_...` is refused, as a server would refuse it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTrackValue {
    /// Error 1231.
    #[error("Variable '{name}' can't be set to the value of '{value}'")]
    WrongValue {
        /// The variable.
        name: String,
        /// What it was to be set to.
        value: String,
    },
    /// Error 1232.
    #[error("Incorrect argument type to variable '{0}'")]
    WrongType(String),
    /// Error 1193.
    #[error("Unknown system variable '{0}'")]
    UnknownVariable(String),
    /// Error 3026 (MySQL).
    #[error("Duplicate entry '{0}'.")]
    Duplicate(String),
}

/// Variables that a list may name, beyond those of which the server is asked.
const ALWAYS_KNOWN: [&str; 5] =
    ["autocommit", "character_set_client", "character_set_connection", "character_set_results", "time_zone"];

impl TrackPreferences {
    /// Those of a session that has set none (MariaDB 10.11, MySQL 9.7).
    pub fn of(family: Family) -> Self {
        Self {
            family,
            schema: true,
            state_change: false,
            transaction_info: TransactionInfo::Off,
            gtids: Gtids::Off,
            system_variables: Some(default_list(family)),
        }
    }

    /// Sets one variable. `is_variable` tells whether the server has a variable of this name.
    ///
    /// # Errors
    /// As a server (MariaDB 10.11, MySQL 9.7): 1231 for a value that does not fit, 1232 for one of the wrong type, 1193 for
    /// a name that it does not know.
    pub fn assign(
        &mut self,
        name: &str,
        value: &Given,
        is_variable: impl Fn(&str) -> bool,
    ) -> Result<(), BadTrackValue> {
        if name == SYSTEM_VARIABLES {
            return self.assign_list(value, is_variable);
        }
        let is_known = match name {
            "session_track_schema" | "session_track_state_change" | "session_track_transaction_info" => true,
            "session_track_gtids" => self.family == Family::MySql,
            _ => false,
        };
        if !is_known {
            return Err(BadTrackValue::UnknownVariable(name.into()));
        }
        let names: &[&str] = match name {
            "session_track_transaction_info" => &["OFF", "STATE", "CHARACTERISTICS"],
            "session_track_gtids" => &["OFF", "OWN_GTID", "ALL_GTIDS"],
            _ => &["OFF", "ON"],
        };
        let position = match value {
            Given::Default => usize::from(name == "session_track_schema"),
            Given::Other => return Err(BadTrackValue::WrongType(name.into())),
            value => value
                .position(names)
                .ok_or_else(|| BadTrackValue::WrongValue { name: name.into(), value: value.shown() })?,
        };
        match (name, position) {
            ("session_track_schema", position) => self.schema = position == 1,
            ("session_track_state_change", position) => self.state_change = position == 1,
            ("session_track_gtids", 0) => self.gtids = Gtids::Off,
            ("session_track_gtids", 1) => self.gtids = Gtids::Own,
            ("session_track_gtids", _) => self.gtids = Gtids::All,
            (_, 0) => self.transaction_info = TransactionInfo::Off,
            (_, 1) => self.transaction_info = TransactionInfo::State,
            _ => self.transaction_info = TransactionInfo::Characteristics,
        }
        Ok(())
    }

    fn assign_list(
        &mut self,
        value: &Given,
        is_variable: impl Fn(&str) -> bool,
    ) -> Result<(), BadTrackValue> {
        let list = match value {
            Given::Default => {
                self.system_variables = Some(default_list(self.family));
                return Ok(());
            }
            Given::Null if self.family == Family::MySql => {
                self.system_variables = None;
                return Ok(());
            }
            Given::Null => {
                let name = SYSTEM_VARIABLES.to_owned();
                return Err(BadTrackValue::WrongValue { name, value: "NULL".to_owned() });
            }
            Given::Integer(_) | Given::Other => {
                return Err(BadTrackValue::WrongType(SYSTEM_VARIABLES.into()));
            }
            // Servers read up to a NUL.
            Given::Text(text) => text.split('\0').next().unwrap_or_default(),
        };
        let is_variable = |name: &str| ALWAYS_KNOWN.contains(&name) || is_variable(name);
        let kept = match self.family {
            Family::MariaDb | Family::Either => list_of_mariadb(list, is_variable)?,
            Family::MySql => list_of_mysql(list, is_variable)?,
        };
        self.system_variables = Some(kept.into());
        Ok(())
    }

    /// Names in a list of which the server has to be asked whether they are variables.
    pub fn questionable(list: &str) -> impl Iterator<Item = String> {
        let names = list.split(',').map(|name| name.trim().to_ascii_lowercase());
        // No server has one with other letters; it is not asked of those.
        let is_name =
            |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'));
        names.filter(move |name| !name.is_empty() && is_name(name) && !ALWAYS_KNOWN.contains(&name.as_str()))
    }

    /// The value that `SELECT @@name` would show, as an SQL literal.
    pub fn literal(&self, name: &str) -> Option<String> {
        let value = self.value(name)?;
        Some(match value {
            _ if matches!(name, "session_track_schema" | "session_track_state_change") => {
                if value == Some("ON") { "1" } else { "0" }.to_owned()
            }
            Some(text) => weir_sql::literal::text(text),
            None => "NULL".to_owned(),
        })
    }

    /// The same where code that nobody has read may have set the variable at the server: what is not as Weir has set it
    /// up there is the session's.
    pub fn behind_code(&self, name: &str) -> Option<String> {
        let literal = self.literal(name)?;
        let own = own_value(name)?;
        // In an expression MariaDB takes the switches for words, unless it has to reckon with them.
        let here = match own.starts_with('1') {
            true => format!("@@session.{name} + 0"),
            false => format!("@@session.{name}"),
        };
        Some(format!("IF({here} <=> {own}, {literal}, {here})"))
    }

    /// An assignment, for a list of SET, that gives a variable at the server the value that Weir needs it to have.
    pub fn back_to_weirs(name: &str) -> Option<String> {
        own_value(name).map(|own| format!("SESSION {name} = {own}"))
    }

    /// The value as it is shown in an OK; `Some(None)` is NULL.
    fn value(&self, name: &str) -> Option<Option<&str>> {
        let flag = |on: bool| if on { "ON" } else { "OFF" };
        Some(Some(match name {
            "session_track_schema" => flag(self.schema),
            "session_track_state_change" => flag(self.state_change),
            "session_track_gtids" if self.family == Family::MySql => match self.gtids {
                Gtids::Off => "OFF",
                Gtids::Own => "OWN_GTID",
                Gtids::All => "ALL_GTIDS",
            },
            "session_track_transaction_info" => match self.transaction_info {
                TransactionInfo::Off => "OFF",
                TransactionInfo::State => "STATE",
                TransactionInfo::Characteristics => "CHARACTERISTICS",
            },
            SYSTEM_VARIABLES => return Some(self.system_variables.as_deref()),
            _ => return None,
        }))
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
            let Some(value) = self.value(name) else { continue };
            let value = value.unwrap_or_default();
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
            SessionTrack::Gtids { .. } => self.gtids != Gtids::Off,
            SessionTrack::TransactionState(_) => self.transaction_info != TransactionInfo::Off,
            SessionTrack::TransactionCharacteristics(_) => {
                self.transaction_info == TransactionInfo::Characteristics
            }
            SessionTrack::Unknown { .. } => false,
        }
    }

    fn shows_variable(&self, name: &[u8]) -> bool {
        // MySQL goes on with what it had, which is mostly its default.
        let list = self.system_variables.as_deref();
        let list = list.map_or_else(|| default_list(self.family), Cow::Borrowed);
        list == "*" || list.split(',').any(|wanted| wanted.trim().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// What Weir sets a variable to on its connections to servers, as an SQL literal.
fn own_value(name: &str) -> Option<String> {
    Some(match name {
        "session_track_schema" | "session_track_state_change" => "1".to_owned(),
        "session_track_transaction_info" => weir_sql::literal::text("CHARACTERISTICS"),
        "session_track_gtids" => weir_sql::literal::text("OWN_GTID"),
        SYSTEM_VARIABLES => weir_sql::literal::text("*"),
        _ => return None,
    })
}

fn default_list(family: Family) -> Cow<'static, str> {
    match family {
        Family::MariaDb | Family::Either => {
            "autocommit,character_set_client,character_set_connection,character_set_results,time_zone"
        }
        Family::MySql => {
            "time_zone,autocommit,character_set_client,character_set_results,character_set_connection"
        }
    }
    .into()
}

/// Unknown names are an error, `*` stands at the end only, and what is kept is sorted.
fn list_of_mariadb(list: &str, is_variable: impl Fn(&str) -> bool) -> Result<String, BadTrackValue> {
    let mut names = BTreeSet::new();
    let mut rest = Some(list).filter(|list| !list.is_empty());
    while let Some(list) = rest {
        if list == "*" {
            return Ok("*".to_owned());
        }
        let (name, behind) = list.split_once(',').map_or((list, None), |(name, rest)| (name, Some(rest)));
        let name = name.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        if name.is_empty() {
            return Err(BadTrackValue::UnknownVariable(list.to_owned()));
        }
        let lower = name.to_ascii_lowercase();
        if !is_variable(&lower) {
            return Err(BadTrackValue::UnknownVariable(name.to_owned()));
        }
        names.insert(lower);
        rest = behind;
    }
    Ok(names.into_iter().collect::<Vec<_>>().join(","))
}

/// Unknown names are kept and ignored, with a warning; the same variable twice is an error.
fn list_of_mysql(list: &str, is_variable: impl Fn(&str) -> bool) -> Result<String, BadTrackValue> {
    let mut seen = BTreeSet::new();
    for name in list.split(',').map(|name| name.trim().to_ascii_lowercase()) {
        if is_variable(&name) && !seen.insert(name.clone()) {
            return Err(BadTrackValue::Duplicate(name));
        }
    }
    Ok(list.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mariadb() -> TrackPreferences {
        TrackPreferences::of(Family::MariaDb)
    }

    fn text(text: &str) -> Given {
        Given::Text(text.to_owned())
    }

    fn is_variable(name: &str) -> bool {
        matches!(name, "sql_mode" | "wait_timeout" | "port")
    }

    fn listed(family: Family, value: &Given) -> Result<Option<String>, String> {
        let mut prefs = TrackPreferences::of(family);
        prefs.assign(SYSTEM_VARIABLES, value, is_variable).map_err(|error| error.to_string())?;
        Ok(prefs.system_variables.map(Cow::into_owned))
    }

    #[test]
    fn values_are_checked_as_a_server_does() {
        let wrong =
            |value: &str| format!("Variable 'session_track_schema' can't be set to the value of '{value}'");
        let set = |value: &Given| {
            let mut prefs = mariadb();
            prefs.schema = false;
            prefs
                .assign("session_track_schema", value, is_variable)
                .map(|()| prefs.schema)
                .map_err(|e| e.to_string())
        };
        assert_eq!(set(&text("oN")), Ok(true));
        assert_eq!(set(&Given::Integer(1)), Ok(true));
        assert_eq!(set(&Given::Default), Ok(true));
        assert_eq!(set(&text("OFF")), Ok(false));
        assert_eq!(set(&Given::Integer(2)), Err(wrong("2")));
        assert_eq!(set(&text("1")), Err(wrong("1")));
        assert_eq!(set(&text("true")), Err(wrong("true")));
        assert_eq!(set(&Given::Null), Err(wrong("NULL")));
        assert_eq!(
            set(&Given::Other),
            Err("Incorrect argument type to variable 'session_track_schema'".into())
        );
        let mut prefs = mariadb();
        prefs.assign("session_track_transaction_info", &text("state"), is_variable).unwrap();
        assert_eq!(prefs.literal("session_track_transaction_info").as_deref(), Some("'STATE'"));
        prefs.assign("session_track_transaction_info", &Given::Integer(2), is_variable).unwrap();
        assert_eq!(prefs.transaction_info, TransactionInfo::Characteristics);
        assert!(prefs.assign("session_track_gtids", &text("OFF"), is_variable).is_err());
        assert_eq!(prefs.literal("session_track_gtids"), None);
        let mut prefs = TrackPreferences::of(Family::MySql);
        prefs.assign("session_track_gtids", &text("ALL_GTIDS"), is_variable).unwrap();
        assert_eq!(prefs.literal("session_track_gtids").as_deref(), Some("'ALL_GTIDS'"));
    }

    #[test]
    fn lists_of_mariadb() {
        let of = |value: &str| listed(Family::MariaDb, &text(value)).map(Option::unwrap_or_default);
        for (list, kept) in [
            ("*", "*"),
            ("time_zone,*", "*"),
            ("*\0", "*"),
            ("", ""),
            (" SQL_MODE , time_zone\n", "sql_mode,time_zone"),
            ("time_zone,sql_mode,time_zone", "sql_mode,time_zone"),
        ] {
            assert_eq!(of(list).as_deref(), Ok(kept), "{list:?}");
        }
        for (list, unknown) in [
            ("*,time_zone", "*"),
            (" * ", "*"),
            (",", ","),
            ("time_zone,", ""),
            (",time_zone", ",time_zone"),
            ("time_zone,,sql_mode", ",sql_mode"),
            ("nosuch", "nosuch"),
            ("`time_zone`", "`time_zone`"),
            ("time_zone';drop table x", "time_zone';drop table x"),
        ] {
            // MariaDB's message of an empty name at the end has nothing in it.
            if unknown.is_empty() {
                continue;
            }
            assert_eq!(of(list), Err(format!("Unknown system variable '{unknown}'")), "{list:?}");
        }
        assert!(listed(Family::MariaDb, &Given::Null).is_err());
        assert!(listed(Family::MariaDb, &Given::Integer(1)).unwrap_err().starts_with("Incorrect argument"));
    }

    #[test]
    fn lists_of_mysql() {
        let of = |value: &str| listed(Family::MySql, &text(value)).map(Option::unwrap_or_default);
        for list in ["*", "*,time_zone", "nosuch,nosuch", ",", "time_zone , sql_mode", "a';drop table x"] {
            assert_eq!(of(list).as_deref(), Ok(list));
        }
        assert_eq!(of("time_zone, TIME_ZONE"), Err("Duplicate entry 'time_zone'.".to_owned()));
        assert_eq!(listed(Family::MySql, &Given::Null), Ok(None));
        assert!(listed(Family::MySql, &Given::Integer(1)).is_err());
    }

    #[test]
    fn literals_are_read_and_other_expressions_are_the_servers() {
        let dialect = Dialect::default();
        let of = |text: &str| Given::of_literal(text.as_bytes(), dialect);
        assert_eq!(of("'*'"), Some(text("*")));
        assert_eq!(of("\"sql_mode\""), Some(text("sql_mode")));
        assert_eq!(of(" on /* x */"), Some(text("on")));
        assert_eq!(of("TRUE"), Some(Given::Integer(1)));
        assert_eq!(of("NULL"), Some(Given::Null));
        assert_eq!(of("default"), Some(Given::Default));
        assert_eq!(of("42"), Some(Given::Integer(42)));
        for other in [
            "1.0",
            "0x01",
            "'a' 'b'",
            r"'a\'b'",
            "'a''b'",
            "@x",
            "@@time_zone",
            "CONCAT('a')",
            "1 + 1",
            "-1",
            "'é'",
            "_latin1'a'",
            "x'41'",
            "?",
            "",
            "a.b",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_list_never_leaves_its_literal() {
        let mut prefs = TrackPreferences::of(Family::MySql);
        prefs.assign(SYSTEM_VARIABLES, &text(r"time_zone\';drop table t; -- "), is_variable).unwrap();
        let literal = prefs.literal(SYSTEM_VARIABLES).unwrap();
        assert!(literal.starts_with("_utf8mb4 X'") && !literal.contains("drop"), "{literal}");
    }

    #[test]
    fn an_assignment_is_shown_as_it_asks_for() {
        let mut prefs = mariadb();
        assert!(prefs.own_tracks(["session_track_schema"].into_iter()).is_empty());
        prefs.assign(SYSTEM_VARIABLES, &text("*"), is_variable).unwrap();
        prefs.assign("session_track_state_change", &Given::Integer(1), is_variable).unwrap();
        let mut expected = Vec::new();
        SessionTrack::SystemVariable { name: b"session_track_state_change", value: b"ON" }
            .write(&mut expected);
        SessionTrack::StateChange(true).write(&mut expected);
        assert_eq!(prefs.own_tracks(["session_track_state_change"].into_iter()), expected);
    }

    #[test]
    fn by_default_a_client_sees_what_servers_show_by_default() {
        let prefs = mariadb();
        assert!(prefs.shows(&SessionTrack::Schema(b"x")));
        assert!(prefs.shows(&SessionTrack::SystemVariable { name: b"time_zone", value: b"x" }));
        assert!(!prefs.shows(&SessionTrack::SystemVariable { name: b"sql_mode", value: b"x" }));
        assert!(!prefs.shows(&SessionTrack::StateChange(true)));
        assert!(!prefs.shows(&SessionTrack::TransactionState(b"T_______")));
    }
}
