//! Checks the statements that turn one state into another against a model of a server.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_protocol::charset::{self, Collation};
use weir_session::state::{Difference, Interner, State, difference, is_restorable};

const CHARSETS: [(&str, &str); 3] =
    [("latin1", "latin1_swedish_ci"), ("utf8mb4", "utf8mb4_general_ci"), ("binary", "binary")];

fn collation(name: &str) -> &'static Collation {
    charset::by_name(name.as_bytes()).expect("a collation that exists")
}

/// A connection as a server sees it: schema and variables that are not at their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Connection {
    schema: Vec<u8>,
    variables: BTreeMap<String, String>,
}

impl Connection {
    fn run(&mut self, difference: &Difference) {
        let Difference::Commands { schema, set } = difference else { return };
        if let Some(set) = set {
            self.set(set.strip_prefix("SET ").expect("a SET statement"));
        }
        if let Some(schema) = schema {
            self.schema = schema.clone();
        }
    }

    fn set(&mut self, list: &str) {
        for part in split(list) {
            if let Some(names) = part.strip_prefix("NAMES ") {
                let (charset, collation) = names.split_once(" COLLATE ").expect("a collation");
                for name in ["character_set_client", "character_set_connection", "character_set_results"] {
                    self.assign(name, &unquote(charset));
                }
                self.assign("collation_connection", &unquote(collation));
                continue;
            }
            let part = part.strip_prefix("SESSION ").expect("a scope");
            let (name, value) = part.split_once('=').expect("an assignment");
            match value {
                "DEFAULT" => drop(self.variables.remove(name)),
                value => self.assign(name, &unquote(value)),
            }
        }
    }

    fn assign(&mut self, name: &str, value: &str) {
        self.variables.insert(name.into(), value.into());
        if name == "character_set_connection" {
            let default =
                CHARSETS.iter().find(|(charset, _)| *charset == value).map(|(_, collation)| *collation);
            self.variables.insert("collation_connection".into(), default.unwrap_or("?").into());
        }
    }
}

/// The parts between commas that are not in quotes.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut start, mut is_quoted) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            '\'' => is_quoted = !is_quoted,
            ',' if !is_quoted => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[start..].trim());
    parts
}

fn unquote(value: &str) -> String {
    if value == "NULL" {
        return String::new();
    }
    match value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        // What quotes can't say: the bytes.
        None if value.starts_with("_utf8mb4 X'") => {
            let hex = value.trim_start_matches("_utf8mb4 X'").trim_end_matches('\'');
            let bytes =
                (0..hex.len() / 2).filter_map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok());
            String::from_utf8(bytes.collect()).unwrap_or_default()
        }
        None => {
            assert!(
                value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-'),
                "bare {value}"
            );
            value.into()
        }
    }
}

/// A state, and the connection that has it.
fn states() -> impl Strategy<Value = (State, Connection)> {
    let names = ["autocommit", "character_set_results", "init_connect", "long_query_time", "sql_mode", "zz"];
    let value = prop_oneof![
        Just(String::new()),
        Just("ON".to_owned()),
        Just("-12.500000".to_owned()),
        Just(".".to_owned()),
        "[ -\\[\\]-~]{0,12}",
    ];
    let variables = proptest::collection::vec((0..names.len(), value), 0..5);
    let connection_charset = proptest::option::of((0..3usize, any::<bool>()));
    ("[a-c]{0,1}", 0..3usize, variables, connection_charset).prop_map(
        move |(schema, login, variables, moved)| {
            let mut state = State::at_login(schema.as_bytes(), collation(CHARSETS[login].1));
            if let Some((to, with_collation)) = moved {
                let (charset, name) = CHARSETS[to];
                state.assign("character_set_connection", charset);
                let other = if charset == "utf8mb4" && with_collation { "utf8mb4_bin" } else { name };
                state.assign("collation_connection", other);
            }
            for (at, value) in variables {
                state.assign(names[at], &value);
            }
            let mut connection = Connection { schema: schema.into_bytes(), ..Connection::default() };
            let all = names.iter().chain(&[
                "character_set_client",
                "character_set_connection",
                "collation_connection",
            ]);
            for name in all {
                if let Some(value) = state.variable(name) {
                    connection.variables.insert((*name).into(), value.into());
                }
            }
            (state, connection)
        },
    )
}

proptest! {
    #[test]
    fn the_difference_leads_to_the_other_state((from, mut connection) in states(), (to, wanted) in states()) {
        let difference = difference(&from, &to);
        if to.schema().is_empty() && !from.schema().is_empty() {
            prop_assert_eq!(difference, Difference::NeedsChangeUser);
        } else {
            connection.run(&difference);
            prop_assert_eq!(connection, wanted, "by {:?}", difference);
        }
    }

    #[test]
    fn a_fresh_connection_gets_everything((to, wanted) in states()) {
        let mut connection = Connection::default();
        connection.run(&difference(&State::fresh(), &to));
        prop_assert_eq!(connection, wanted);
    }

    #[test]
    fn equal_states_are_one_allocation((a, _) in states(), (b, _) in states()) {
        let mut interner = Interner::default();
        let (first, second) = (interner.intern(a.clone()), interner.intern(b.clone()));
        prop_assert_eq!(std::rc::Rc::ptr_eq(&first, &second), a == b);
        prop_assert_eq!(difference(&first, &second) == Difference::None, a == b);
    }
}

#[test]
fn states_that_nobody_holds_are_dropped() {
    let mut interner = Interner::default();
    let held = interner.intern(State::fresh().with_variable("held", "1"));
    for at in 0..5_000 {
        interner.intern(State::fresh().with_variable("timeout", &at.to_string()));
    }
    let again = interner.intern(State::fresh().with_variable("held", "1"));
    assert!(std::rc::Rc::ptr_eq(&held, &again));
}

#[test]
fn values_with_backslashes_or_bytes_that_need_a_character_set_are_not_written_back() {
    assert!(is_restorable(b"it's, '+01:00'"));
    for value in [&b"a\\b"[..], b"\xC3\xA4", b"a\nb", b"\0"] {
        assert!(!is_restorable(value), "{}", value.escape_ascii());
    }
}

#[test]
fn a_variable_goes_back_to_its_default() {
    let mut state = State::fresh().with_variable("sql_mode", "ANSI").with_variable("time_zone", "SYSTEM");
    state.unassign("sql_mode");
    state.unassign("never_set");
    assert_eq!(state, State::fresh().with_variable("time_zone", "SYSTEM"));
}
