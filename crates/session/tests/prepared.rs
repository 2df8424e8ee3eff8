//! Prepared statements: which are the same, where they can be prepared, and which are closed.

use std::rc::Rc;

use weir_protocol::charset;
use weir_session::prepared::{BackendStatements, Prepared, Registry};
use weir_session::state::{Difference, State, difference};
use weir_sql::{Dialect, Server};

fn state(schema: &[u8]) -> State {
    State::at_login(schema, charset::by_name(b"utf8mb4_general_ci").expect("a collation"))
}

fn prepare(registry: &mut Registry, text: &str, state: &State) -> Rc<Prepared> {
    let statement = weir_sql::scan(text.as_bytes(), Dialect::default());
    registry.intern(text.as_bytes(), state, (statement, Server::default()), usize::MAX).expect("no limit")
}

#[test]
fn the_same_text_under_the_same_parse_state_is_one_statement() {
    let mut registry = Registry::default();
    let one = prepare(&mut registry, "SELECT 1", &state(b"a"));
    let elsewhere = state(b"a").with_variable("autocommit", "OFF").with_variable("time_zone", "+01:00");
    assert!(Rc::ptr_eq(&one, &prepare(&mut registry, "SELECT 1", &elsewhere)));
    let others = [
        prepare(&mut registry, "SELECT 2", &state(b"a")),
        prepare(&mut registry, "SELECT 1", &state(b"b")),
        prepare(&mut registry, "SELECT 1", &state(b"a").with_variable("sql_mode", "ANSI")),
        prepare(&mut registry, "SELECT 1", &state(b"a").with_variable("character_set_client", "latin1")),
    ];
    assert!(others.iter().all(|other| !Rc::ptr_eq(&one, other)));
}

#[test]
fn preparing_elsewhere_changes_only_what_parsing_depends_on() {
    let mut registry = Registry::default();
    let prepared = prepare(&mut registry, "SELECT 1", &state(b"a").with_variable("sql_mode", "ANSI"));
    let present = state(b"b").with_variable("autocommit", "OFF").with_variable("wait_timeout", "5");
    assert!(!prepared.can_be_prepared_in(&present));
    let there = prepared.state_to_prepare_in(&present);
    assert!(prepared.can_be_prepared_in(&there));
    // SET autocommit would commit the transaction that the statement is to run in.
    let Difference::Commands { schema, set } = difference(&present, &there) else {
        panic!("commands expected")
    };
    assert_eq!((schema.as_deref(), set.as_deref()), (Some(&b"a"[..]), Some("SET SESSION sql_mode='ANSI'")));
}

#[test]
fn a_mode_that_the_statement_does_not_know_goes_back_to_its_default() {
    let mut registry = Registry::default();
    let prepared = prepare(&mut registry, "SELECT 1", &state(b"a"));
    let present = state(b"a").with_variable("sql_mode", "ANSI");
    assert_eq!(prepared.state_to_prepare_in(&present), state(b"a"));
}

#[test]
fn a_statement_without_a_schema_can_be_prepared_in_any() {
    let mut registry = Registry::default();
    let prepared = prepare(&mut registry, "SELECT 1", &state(b""));
    assert!(prepared.can_be_prepared_in(&state(b"a")));
    assert_eq!(prepared.state_to_prepare_in(&state(b"a")).schema(), b"a");
}

#[test]
fn the_registry_forgets_what_nobody_holds() {
    let mut registry = Registry::default();
    let held = prepare(&mut registry, "SELECT 'held'", &state(b"a"));
    for at in 0..5_000 {
        prepare(&mut registry, &format!("SELECT {at}"), &state(b"a"));
    }
    assert!(Rc::ptr_eq(&held, &prepare(&mut registry, "SELECT 'held'", &state(b"a"))));
}

#[test]
fn the_least_recently_used_statement_is_closed() {
    let mut registry = Registry::default();
    let texts = ["SELECT 1", "SELECT 2", "SELECT 3"];
    let [a, b, c] = texts.map(|text| prepare(&mut registry, text, &state(b"a")));
    let mut here = BackendStatements::default();
    assert_eq!(here.insert(&a, 10, 2), []);
    assert_eq!(here.insert(&b, 11, 2), []);
    assert_eq!(here.touch(&a).map(|statement| statement.id), Some(10));
    assert_eq!(here.insert(&c, 12, 2), [11]);
    assert!(here.contains(&a) && !here.contains(&b) && here.contains(&c));
    assert!(here.touch(&b).is_none());
    // Prepared anew on the same connection: the older one goes.
    assert_eq!(here.insert(&c, 13, 2), [12]);
    assert_eq!(here.len(), 2);
    here.clear();
    assert!(here.is_empty());
}

#[test]
fn at_least_one_statement_is_kept_whatever_the_limit() {
    let mut registry = Registry::default();
    let a = prepare(&mut registry, "SELECT 1", &state(b"a"));
    let b = prepare(&mut registry, "SELECT 2", &state(b"a"));
    let mut here = BackendStatements::default();
    assert_eq!(here.insert(&a, 1, 0), []);
    assert_eq!(here.insert(&b, 2, 0), [1]);
    assert_eq!(here.len(), 1);
}

#[test]
fn types_of_a_failed_execution_are_sent_again() {
    let mut registry = Registry::default();
    let a = prepare(&mut registry, "SELECT ?", &state(b"a"));
    let mut here = BackendStatements::default();
    here.insert(&a, 1, 8);
    here.touch(&a).expect("the statement").types = Some([8, 0].into());
    here.forget_types(&a);
    assert_eq!(here.touch(&a).expect("the statement").types, None);
}

#[test]
fn the_bytes_that_somebody_holds_are_limited() {
    let mut registry = Registry::default();
    let state = State::fresh();
    let mut intern = |text: &[u8]| {
        registry.intern(text, &state, (weir_sql::scan(text, Dialect::default()), Server::default()), 30)
    };
    let first = intern(b"SELECT 1 FROM t").unwrap();
    let second = intern(b"SELECT 2 FROM t").unwrap();
    assert!(intern(b"SELECT 3").is_none());
    assert!(intern(b"SELECT 2 FROM t").is_some(), "it is there already");
    drop(first);
    assert!(intern(b"SELECT 3").is_some(), "nobody holds the first one any more");
    drop(second);
    assert!(intern(b"SELECT 4 FROM t, u WHERE t.id").is_some());
}
