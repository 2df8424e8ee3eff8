//! Holds the variables with which a fresh connection to a server begins.
//!
//! A session has the defaults of its login for as long as it lives, as on a connection of its own. Connections whose
//! defaults are others (a SET GLOBAL has come between, or another server has other settings) are brought to the session's
//! by [`carried`].

use std::collections::HashSet;
use std::rc::Rc;

use crate::state::{State, is_restorable};

/// Defaults kept by one interner before those that nobody holds are dropped.
const INTERNED_SWEEP: usize = 64;

/// Two names of one variable: who sets the one has set the other (MariaDB 10.11 and 11.1).
const ALIASES: [(&str, &str); 5] = [
    ("log_slow_min_examined_row_limit", "min_examined_row_limit"),
    ("log_slow_query", "slow_query_log"),
    ("log_slow_query_time", "long_query_time"),
    ("tx_isolation", "transaction_isolation"),
    ("tx_read_only", "transaction_read_only"),
];

/// The variables of a connection that no session has had yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Defaults {
    /// The server has told them.
    is_known: bool,
    /// Those that a session may set and that can be written back.
    variables: State,
    /// The server runs statements of its own (`init_connect`) on each new connection, and neither after
    /// COM_RESET_CONNECTION nor after COM_CHANGE_USER (seen on MariaDB 10.11 and MySQL 9.7).
    runs_init_connect: bool,
}

impl Defaults {
    /// From a server's answer: `1` or `0` for an init_connect of the server's, then the values of these names, each with
    /// `separator` in front, and `null` for NULL. `None` if it is no answer to that.
    pub fn parse(names: &[Box<str>], answer: &[u8], separator: u8, null: u8) -> Option<Self> {
        let mut values = answer.split(|byte| *byte == separator);
        let runs_init_connect = match values.next()? {
            b"0" => false,
            b"1" => true,
            _ => return None,
        };
        let mut variables = State::fresh();
        for name in names {
            let value = values.next()?;
            if value != [null]
                && is_restorable(value)
                && let Ok(value) = std::str::from_utf8(value)
            {
                variables.assign(name, value);
            }
        }
        values.next().is_none().then_some(Self { is_known: true, variables, runs_init_connect })
    }

    /// The same with variables that were set besides.
    pub fn with(mut self, others: &State) -> Self {
        for (name, value) in others.variables() {
            self.variables.assign(name, value);
        }
        self
    }

    /// Whether the server has told them.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Neither the server nor an init_connect of Weir's has told any.
    pub fn says_nothing(&self) -> bool {
        !self.is_known && self.variables.variables().next().is_none()
    }

    /// The variables, in a state without a schema.
    pub fn variables(&self) -> &State {
        &self.variables
    }

    /// Whether only a new connection is as the server wants it.
    pub fn runs_init_connect(&self) -> bool {
        self.runs_init_connect
    }

    /// Whether sessions begin with autocommit; `None` where nothing is known.
    pub fn is_autocommit(&self) -> Option<bool> {
        self.variables.variable("autocommit").map(|value| !matches!(value, "0" | "OFF"))
    }
}

/// The state of a session that began with the defaults `own`, for connections that have those of `there`: what it has
/// not set itself is set to its defaults where the two differ.
pub fn carried(state: &State, own: &Defaults, there: &Defaults) -> State {
    let mut carried = state.clone();
    for (name, value) in own.variables.variables() {
        let is_other = there.variables.variable(name).is_some_and(|other| other != value);
        if is_other && state.variable(name).is_none() && !has_set_alias(state, name) {
            carried.assign(name, value);
        }
    }
    carried
}

fn has_set_alias(state: &State, name: &str) -> bool {
    ALIASES.iter().any(|(one, other)| {
        (*one == name && state.variable(other).is_some()) || (*other == name && state.variable(one).is_some())
    })
}

/// Makes equal defaults one and the same allocation.
#[derive(Debug, Default)]
pub struct Interner {
    known: HashSet<Rc<Defaults>>,
}

impl Interner {
    /// The one allocation for these defaults.
    pub fn intern(&mut self, defaults: Defaults) -> Rc<Defaults> {
        if let Some(known) = self.known.get(&defaults) {
            return known.clone();
        }
        if self.known.len() >= INTERNED_SWEEP {
            self.known.retain(|known| Rc::strong_count(known) > 1);
        }
        let defaults = Rc::new(defaults);
        self.known.insert(defaults.clone());
        defaults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| Box::from(*name)).collect()
    }

    fn parse(answer: &[u8]) -> Option<Defaults> {
        let names = names(&["autocommit", "sql_mode", "default_tmp_storage_engine", "secret"]);
        Defaults::parse(&names, answer, b'|', b'~')
    }

    #[test]
    fn an_answer_has_one_value_for_each_name() {
        let defaults = parse(b"1|0|ANSI|~|a\\b").unwrap();
        assert!(defaults.runs_init_connect());
        assert_eq!(defaults.is_autocommit(), Some(false));
        assert_eq!(defaults.variables().variable("sql_mode"), Some("ANSI"));
        assert_eq!(defaults.variables().variable("default_tmp_storage_engine"), None, "NULL");
        assert_eq!(defaults.variables().variable("secret"), None, "can't be written back");
        for broken in [&b""[..], b"2|0|ANSI|~|x", b"0|0|ANSI|~", b"0|0|ANSI|~|x|y"] {
            assert_eq!(parse(broken), None);
        }
    }

    #[test]
    fn a_session_keeps_the_defaults_of_its_login() {
        let own = parse(b"0|1||~|x").unwrap();
        let there = parse(b"0|0|ANSI|~|x").unwrap();
        let state = State::fresh().with_schema(b"shop");
        let expected = state.with_variable("autocommit", "1").with_variable("sql_mode", "");
        assert_eq!(carried(&state, &own, &there), expected);
        // What it has set itself stays.
        let state = state.with_variable("sql_mode", "TRADITIONAL").with_variable("autocommit", "OFF");
        assert_eq!(carried(&state, &own, &there), state);
        assert_eq!(carried(&state, &own, &Defaults::default()), state, "nothing is known there");
    }

    #[test]
    fn a_variable_set_by_its_other_name_is_set() {
        let names = names(&["long_query_time", "log_slow_query_time"]);
        let parse = |answer| Defaults::parse(&names, answer, b'|', b'~').unwrap();
        let state = State::fresh().with_variable("long_query_time", "5");
        assert_eq!(carried(&state, &parse(b"0|10|10"), &parse(b"0|2|2")), state);
    }

    #[test]
    fn equal_defaults_are_one_allocation() {
        let mut interner = Interner::default();
        let one = interner.intern(parse(b"0|1||~|x").unwrap());
        assert!(Rc::ptr_eq(&one, &interner.intern(parse(b"0|1||~|x").unwrap())));
        for number in 0..3 * INTERNED_SWEEP {
            interner.intern(parse(format!("0|{number}||~|x").as_bytes()).unwrap());
        }
        assert!(interner.known.len() <= INTERNED_SWEEP);
        assert!(Rc::ptr_eq(&one, &interner.intern(parse(b"0|1||~|x").unwrap())));
    }
}
