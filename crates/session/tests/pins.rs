//! Pins by what statements say: when they begin and what ends them.

use weir_session::pin::{PinBoard, Pins};
use weir_sql::{Dialect, Effects};

/// Takes in each statement and compares the pins after it.
fn check(steps: &[(&str, Pins)]) {
    let mut board = PinBoard::default();
    let dialect = Dialect::default();
    for (text, expected) in steps {
        let statement = weir_sql::scan(text.as_bytes(), dialect);
        board.apply(statement.effects, b"shop", || weir_sql::named_effects(text.as_bytes(), dialect));
        assert_eq!(board.pins(), *expected, "after {text}");
        assert_eq!(board.is_empty(), expected.is_empty());
    }
}

const NONE: Pins = Pins::empty();

#[test]
fn plain_statements_pin_nothing() {
    let statements =
        ["SELECT 1", "INSERT INTO t VALUES (1)", "SET time_zone='+00:00'", "USE shop", "BEGIN", "COMMIT"];
    check(&statements.map(|text| (text, NONE)));
}

#[test]
fn user_variables_pin_for_good() {
    check(&[("SET @a=1", Pins::USER_VARIABLE), ("SELECT 1", Pins::USER_VARIABLE)]);
    check(&[("SELECT @a:=1", Pins::USER_VARIABLE)]);
}

#[test]
fn the_last_temporary_table_ends_its_pin() {
    let pin = Pins::TEMPORARY_TABLE;
    check(&[
        ("CREATE TEMPORARY TABLE a (i INT)", pin),
        ("CREATE TEMPORARY TABLE other.b (i INT)", pin),
        ("DROP TABLE a", pin),
        ("DROP TABLE shop.b", pin),
        ("DROP TEMPORARY TABLE other.b", NONE),
    ]);
    check(&[
        ("CREATE TEMPORARY TABLE a (i INT)", pin),
        ("CREATE TEMPORARY TABLE IF NOT EXISTS shop.a (i INT)", pin),
        ("DROP TABLE a", NONE),
    ]);
}

#[test]
fn a_renamed_temporary_table_pins_until_a_reset() {
    let pin = Pins::TEMPORARY_TABLE;
    check(&[
        ("CREATE TEMPORARY TABLE a (i INT)", pin),
        ("ALTER TABLE a RENAME TO b", pin),
        ("DROP TABLE a", pin),
        ("DROP TABLE b", pin),
    ]);
}

#[test]
fn text_prepares_end_by_name_and_without_case() {
    let pin = Pins::TEXT_PREPARE;
    check(&[
        ("PREPARE s FROM 'SELECT 1'", pin),
        ("PREPARE S FROM 'SELECT 2'", pin),
        ("PREPARE t FROM 'SELECT 3'", pin),
        ("DEALLOCATE PREPARE s", pin),
        ("DROP PREPARE t", NONE),
    ]);
}

#[test]
fn locks_are_counted() {
    let pin = Pins::USER_LOCK;
    check(&[
        ("SELECT GET_LOCK('a', 1)", pin),
        ("SELECT GET_LOCK('A', 1)", pin),
        ("SELECT RELEASE_LOCK('a')", pin),
        ("SELECT RELEASE_LOCK('a')", NONE),
        ("SELECT GET_LOCK('b', 1)", pin),
        ("SELECT RELEASE_ALL_LOCKS()", NONE),
    ]);
    check(&[
        ("SELECT GET_LOCK(CONCAT('a', 'b'), 1) FROM t", pin),
        ("SELECT RELEASE_LOCK('ab')", pin),
        ("DO RELEASE_ALL_LOCKS()", NONE),
    ]);
}

#[test]
fn table_locks_handlers_and_backups_end_by_their_statements() {
    check(&[("LOCK TABLES t READ", Pins::TABLE_LOCK), ("UNLOCK TABLES", NONE)]);
    check(&[("FLUSH TABLES WITH READ LOCK", Pins::TABLE_LOCK), ("UNLOCK TABLES", NONE)]);
    check(&[
        ("HANDLER t OPEN AS h", Pins::HANDLER),
        ("HANDLER t OPEN", Pins::HANDLER),
        ("HANDLER h CLOSE", Pins::HANDLER),
        ("HANDLER t CLOSE", NONE),
    ]);
    check(&[("BACKUP STAGE START", Pins::BACKUP), ("BACKUP STAGE END", NONE)]);
}

#[test]
fn what_can_t_be_seen_pins() {
    check(&[("CALL p()", Pins::ROUTINE)]);
    check(&[("SET ROLE admin", Pins::ROLE)]);
    check(&[("XA START 'x'", Pins::XA)]);
    check(&[("SET SESSION rand_seed1=5", Pins::UNREADABLE_VARIABLE)]);
}

#[test]
fn too_many_names_are_not_counted_one_by_one() {
    let mut board = PinBoard::default();
    let dialect = Dialect::default();
    let mut apply = |text: String| {
        let statement = weir_sql::scan(text.as_bytes(), dialect);
        board.apply(statement.effects, b"shop", || weir_sql::named_effects(text.as_bytes(), dialect));
        board.pins()
    };
    for at in 0..300 {
        assert_eq!(apply(format!("CREATE TEMPORARY TABLE t{at} (i INT)")), Pins::TEMPORARY_TABLE);
    }
    for at in 0..300 {
        assert_eq!(apply(format!("DROP TABLE t{at}")), Pins::TEMPORARY_TABLE);
    }
}

#[test]
fn an_effect_without_a_name_pins_until_a_reset() {
    let mut board = PinBoard::default();
    board.apply(Effects::TEMPORARY_TABLE_CREATED, b"", Vec::new);
    board.apply(weir_sql::scan(b"DROP TABLE a", Dialect::default()).effects, b"", || {
        weir_sql::named_effects(b"DROP TABLE a", Dialect::default())
    });
    assert_eq!(board.pins(), Pins::TEMPORARY_TABLE);
    board.clear();
    assert!(board.is_empty());
}

#[test]
fn pins_have_words() {
    assert_eq!((Pins::TRANSACTION | Pins::USER_LOCK).words(), "transaction, user_lock");
    assert_eq!(NONE.words(), "");
}

/// The guide says of every pin whether it moves to another server, and nothing else.
#[test]
fn the_guide_knows_every_pin() {
    let guide = include_str!("../../../docs/guide/pins.md");
    let table = guide.split("| pin | begins with | ends with | moves to another server |").nth(1).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let told: Vec<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    for (name, pin) in Pins::all().iter_names() {
        let name = name.to_ascii_lowercase();
        let places: Vec<_> = rows.iter().zip(&told).filter(|(_, told)| **told == name).collect();
        let [(row, _)] = places.as_slice() else { panic!("{name} is in {} rows", places.len()) };
        assert_eq!(row.len(), 4, "{name}");
        let answer = if Pins::MOVABLE.contains(pin) { "yes" } else { "no: " };
        assert!(row[3].starts_with(answer), "{name}: {}", row[3]);
    }
    assert_eq!(told.len(), Pins::all().iter_names().count());
}
