//! Tracks state: what must hold on a backend connection before a session's statement may run there.
//!
//! A [`State`] is the default schema and the session variables that differ from a fresh connection's, as the
//! *server* reported them in its OK packets. States are immutable and hash-consed by an [`Interner`], so that
//! "does this lease match this session" is one comparison of pointers.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use weir_protocol::charset::Collation;
use weir_sql::literal::text;

/// States kept by one interner before those that nobody holds are dropped.
const INTERNED_STATES_SWEEP: usize = 1024;

/// A session variable: its name in lower case and the value as the server shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Variable {
    name: Box<str>,
    value: Box<str>,
}

/// The default schema and the session variables of one session or backend connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct State {
    schema: Box<[u8]>,
    /// Sorted by name. The four character set variables are always there.
    variables: Vec<Variable>,
}

/// Variables that say which characters a client speaks; every state names all four.
const CHARSET_VARIABLES: [&str; 4] =
    ["character_set_client", "character_set_connection", "character_set_results", "collation_connection"];

impl State {
    /// The state of a session right after its login.
    pub fn at_login(schema: &[u8], collation: &Collation) -> Self {
        let values = [collation.charset, collation.charset, collation.charset, collation.name];
        let variables = CHARSET_VARIABLES
            .iter()
            .zip(values)
            .map(|(name, value)| Variable { name: (*name).into(), value: value.into() })
            .collect();
        Self { schema: schema.into(), variables }
    }

    /// The state of a connection of which nothing is known but that it is new: no schema, and character sets
    /// that must be set before use.
    pub fn fresh() -> Self {
        Self::default()
    }

    /// The default schema; empty where there is none.
    pub fn schema(&self) -> &[u8] {
        &self.schema
    }

    /// The variables that were ever set in this session, by name.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|variable| (&*variable.name, &*variable.value))
    }

    /// The value of a variable, if it was ever set in this session.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let at = self.variables.binary_search_by(|v| (*v.name).cmp(name)).ok()?;
        Some(&self.variables[at].value)
    }

    /// The same state with another schema.
    pub fn with_schema(&self, schema: &[u8]) -> Self {
        Self { schema: schema.into(), variables: self.variables.clone() }
    }

    /// The same state with one variable set.
    pub fn with_variable(&self, name: &str, value: &str) -> Self {
        let mut next = self.clone();
        next.assign(name, value);
        next
    }

    /// Sets a variable in place.
    pub fn assign(&mut self, name: &str, value: &str) {
        match self.variables.binary_search_by(|v| (*v.name).cmp(name)) {
            Ok(at) => self.variables[at].value = value.into(),
            Err(at) => self.variables.insert(at, Variable { name: name.into(), value: value.into() }),
        }
    }

    /// Puts a variable back to its default in place.
    pub fn unassign(&mut self, name: &str) {
        if let Ok(at) = self.variables.binary_search_by(|v| (*v.name).cmp(name)) {
            self.variables.remove(at);
        }
    }

    /// Sets the schema in place.
    pub fn assign_schema(&mut self, schema: &[u8]) {
        self.schema = schema.into();
    }
}

/// The statements that turn one state into another.
#[derive(Debug, PartialEq, Eq)]
pub enum Difference {
    /// Nothing: the states are equal.
    None,
    /// Up to two commands: a new default schema and one SET statement.
    Commands {
        /// For COM_INIT_DB.
        schema: Option<Vec<u8>>,
        /// For COM_QUERY.
        set: Option<String>,
    },
    /// No statement leads there: a connection can't leave its schema for none. COM_CHANGE_USER can.
    NeedsChangeUser,
}

/// The way from the state of a connection to the one that a session needs.
pub fn difference(from: &State, to: &State) -> Difference {
    difference_above(&State::default(), from, to)
}

/// The same where `base` tells the variables that a fresh connection has set to other values than the server's
/// defaults: they go back to these.
pub fn difference_above(base: &State, from: &State, to: &State) -> Difference {
    if from == to {
        return Difference::None;
    }
    let schema = match (&*from.schema, &*to.schema) {
        (a, b) if a == b => None,
        (_, []) => return Difference::NeedsChangeUser,
        (_, b) => Some(b.to_vec()),
    };
    let mut set = String::new();
    let names = names_clause(from, to);
    if let Some(names) = &names {
        set = format!("SET {names}");
    }
    let mut assign = |name: &str, value: Option<&str>| {
        set.push_str(if set.is_empty() { "SET SESSION " } else { ", SESSION " });
        let _ = match value {
            None if has_wrong_default(name) => write!(set, "{name}=@@global.{name}"),
            None => write!(set, "{name}=DEFAULT"),
            Some(value) => write!(set, "{name}={}", literal(name, value)),
        };
    };
    // Both lists are sorted, and so is the output: character_set_connection comes before
    // collation_connection, which it would otherwise overwrite.
    for variable in &to.variables {
        let name = &*variable.name;
        if names.is_some() && CHARSET_VARIABLES.contains(&name) {
            continue;
        }
        if from.variable(name) != Some(&*variable.value) || is_touched_by_charset(name, from, to) {
            assign(name, Some(&variable.value));
        }
    }
    for variable in &from.variables {
        if to.variable(&variable.name).is_none() {
            assign(&variable.name, base.variable(&variable.name));
        }
    }
    Difference::Commands { schema, set: (!set.is_empty()).then_some(set) }
}

/// `NAMES ... COLLATE ...`, where that leads to all four character set variables and one of them differs. It is what
/// a login does, too: results then name the collation in their columns, and not only the character set (seen on
/// MariaDB 10.11), as after single assignments.
fn names_clause(from: &State, to: &State) -> Option<String> {
    if CHARSET_VARIABLES.iter().all(|name| from.variable(name) == to.variable(name)) {
        return None;
    }
    let [client, connection, results, collation] = CHARSET_VARIABLES.map(|name| to.variable(name));
    let (charset, collation) = (client?, collation?);
    let is_of_charset =
        collation.strip_prefix(charset).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    (connection == client && results == client && is_of_charset)
        .then(|| format!("NAMES {} COLLATE {}", literal("", charset), literal("", collation)))
}

/// Setting character_set_connection resets collation_connection, which then has to be set again even where the
/// two states agree about it.
fn is_touched_by_charset(name: &str, from: &State, to: &State) -> bool {
    name == "collation_connection"
        && from.variable("character_set_connection") != to.variable("character_set_connection")
}

/// A value as it can be written back in a SET statement: numbers bare, words quoted.
fn literal(name: &str, value: &str) -> String {
    if value.is_empty() && is_nullable(name) {
        return "NULL".into(); // the server reports NULL as an empty string
    }
    if is_number(value) && !is_text_variable(name) {
        return value.into();
    }
    text(value)
}

/// Whether a value that the server reported can be given back to another connection letter by letter: there
/// is no telling how a backslash is read there, or in which character set other bytes came.
pub fn is_restorable(value: &[u8]) -> bool {
    value.iter().all(|byte| matches!(byte, 0x20..=0x7E) && *byte != b'\\')
}

fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && digits.bytes().filter(|b| *b == b'.').count() <= 1
        && digits != "."
}

fn is_nullable(name: &str) -> bool {
    matches!(
        name,
        "character_set_results"
            | "default_tmp_storage_engine"
            | "enforce_storage_engine"
            | "external_table_secondary_storage_engine"
            | "innodb_ft_user_stopword_table"
            | "innodb_tmpdir"
    )
}

/// MySQL (9.7) switches these off when told to put back their default, which is ON.
fn has_wrong_default(name: &str) -> bool {
    matches!(name, "foreign_key_checks" | "unique_checks")
}

/// Variables whose value is text even where it looks like a number.
fn is_text_variable(name: &str) -> bool {
    name == "default_master_connection"
}

/// Makes equal states one and the same allocation.
#[derive(Debug, Default)]
pub struct Interner {
    states: HashSet<ByValue>,
}

#[derive(Debug)]
struct ByValue(Rc<State>);

impl PartialEq for ByValue {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}
impl Eq for ByValue {}
impl Hash for ByValue {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}
impl std::borrow::Borrow<State> for ByValue {
    fn borrow(&self) -> &State {
        &self.0
    }
}

impl Interner {
    /// The one allocation for this state.
    pub fn intern(&mut self, state: State) -> Rc<State> {
        if let Some(known) = self.states.get(&state) {
            return known.0.clone();
        }
        if self.states.len() >= INTERNED_STATES_SWEEP && self.states.len().is_power_of_two() {
            self.states.retain(|state| Rc::strong_count(&state.0) > 1);
        }
        let state = Rc::new(state);
        self.states.insert(ByValue(state.clone()));
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> State {
        State::at_login(
            b"shop",
            &Collation { id: 45, charset: "utf8mb4", name: "utf8mb4_general_ci", is_default: true },
        )
    }

    fn set_of(difference: Difference) -> String {
        match difference {
            Difference::Commands { set: Some(set), .. } => set,
            other => panic!("no SET in {other:?}"),
        }
    }

    #[test]
    fn equal_states_are_one_allocation_and_need_nothing() {
        let mut interner = Interner::default();
        let a = interner.intern(login().with_variable("sql_mode", "ANSI"));
        let b = interner.intern(login().with_variable("sql_mode", "ANSI"));
        assert!(Rc::ptr_eq(&a, &b));
        assert_eq!(difference(&a, &b), Difference::None);
    }

    #[test]
    fn a_fresh_connection_gets_schema_and_all_character_set_variables() {
        let Difference::Commands { schema, set: Some(set) } = difference(&State::fresh(), &login()) else {
            panic!("commands expected");
        };
        assert_eq!(schema.as_deref(), Some(&b"shop"[..]));
        assert_eq!(set, "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci'");
    }

    #[test]
    fn no_value_is_null_where_an_empty_one_is_another() {
        let name = "external_table_secondary_storage_engine";
        let dirty = login().with_variable(name, "RAPID");
        let wanted = login().with_variable(name, "");
        assert_eq!(set_of(difference(&dirty, &wanted)), format!("SET SESSION {name}=NULL"));
    }

    #[test]
    fn what_the_other_session_set_goes_back_to_default() {
        let dirty = login().with_variable("sql_mode", "ANSI").with_variable("wait_timeout", "10");
        let wanted = login().with_variable("wait_timeout", "20");
        assert_eq!(
            set_of(difference(&dirty, &wanted)),
            "SET SESSION wait_timeout=20, SESSION sql_mode=DEFAULT"
        );
        let unchecked = login().with_variable("foreign_key_checks", "OFF");
        assert_eq!(
            set_of(difference(&unchecked, &login())),
            "SET SESSION foreign_key_checks=@@global.foreign_key_checks"
        );
    }

    #[test]
    fn variables_go_back_to_what_a_fresh_connection_has() {
        let base = State::fresh().with_variable("wait_timeout", "60");
        let dirty = login().with_variable("wait_timeout", "5").with_variable("tx_isolation", "SERIALIZABLE");
        assert_eq!(
            set_of(difference_above(&base, &dirty, &login())),
            "SET SESSION tx_isolation=DEFAULT, SESSION wait_timeout=60"
        );
    }

    #[test]
    fn a_collation_is_set_again_when_its_character_set_moves() {
        let latin = login()
            .with_variable("character_set_connection", "latin1")
            .with_variable("collation_connection", "utf8mb4_general_ci");
        let mixed = login().with_variable("character_set_results", "latin2");
        assert_eq!(
            set_of(difference(&latin.with_variable("character_set_results", "latin2"), &mixed)),
            "SET SESSION character_set_connection='utf8mb4', SESSION collation_connection='utf8mb4_general_ci'"
        );
        assert_eq!(
            set_of(difference(&latin, &login().with_variable("sql_mode", ""))),
            "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci', SESSION sql_mode=''"
        );
    }

    #[test]
    fn no_statement_leads_to_no_schema() {
        assert_eq!(difference(&login(), &login().with_schema(b"")), Difference::NeedsChangeUser);
    }

    #[test]
    fn values_are_written_back_as_their_type_asks() {
        assert_eq!(literal("long_query_time", "0.500000"), "0.500000");
        assert_eq!(literal("sql_mode", ""), "''");
        assert_eq!(literal("character_set_results", ""), "NULL");
        assert_eq!(literal("default_master_connection", "7"), "'7'");
        assert_eq!(literal("time_zone", "+00:00"), "'+00:00'");
        assert_eq!(literal("init_connect", "it's"), "'it''s'");
        assert!(!is_restorable(b"a\\b"));
    }
}
