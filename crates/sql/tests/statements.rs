//! The table in `statements.txt`, and what must not change its answers.

use std::sync::LazyLock;

use proptest::prelude::*;
use weir_sql::{Access, Dialect, Effects, Kind, LeadBytes, Lexer, Server, Statement, TokenKind, Uses, scan};

struct Row {
    line: usize,
    dialect: Dialect,
    expected: String,
    statement: &'static str,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(rows);

fn rows() -> Vec<Row> {
    let mut dialect = Dialect::default();
    let mut rows = Vec::new();
    for (number, line) in include_str!("statements.txt").lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            dialect = dialect_named(name.trim_end_matches(']'));
            continue;
        }
        let (expected, statement) = line.split_once('|').expect("a column of statements");
        let mut columns: Vec<&str> = expected.split_whitespace().collect();
        if columns.len() == 3 {
            columns.insert(2, "-");
        }
        let expected = columns.into_iter().map(sorted).collect::<Vec<_>>().join(" ");
        rows.push(Row { line: number + 1, dialect, expected, statement: statement.trim() });
    }
    rows
}

fn dialect_named(name: &str) -> Dialect {
    let default = Dialect::default();
    match name {
        "default" => default,
        "ansi_quotes" => Dialect { ansi_quotes: true, ..default },
        "brackets" => Dialect { brackets: true, ansi_quotes: true, ..default },
        "no_backslash_escapes" => Dialect { no_backslash_escapes: true, ..default },
        "ignore_space" => Dialect { ignore_space: true, ..default },
        "mariadb 11.4" => Dialect { server: Server::mariadb(11, 4), ..default },
        "gbk" => Dialect { lead_bytes: LeadBytes::Gbk, ..default },
        "mysql 9.7" => Dialect { server: Server::mysql(9, 7), ..default },
        "mysql 5.7" => Dialect { server: Server::mysql(5, 7), ..default },
        "either" => Dialect { server: Server::UNKNOWN, ..default },
        "mysql 8.4" => Dialect { server: Server::mysql(8, 4), ..default },
        _ => panic!("unknown dialect {name}"),
    }
}

fn sorted(names: &str) -> String {
    let mut names: Vec<&str> = names.split('+').collect();
    names.sort_unstable();
    names.join("+")
}

/// The statement's columns as the table has them.
fn columns(statement: Statement) -> String {
    let mut effects: Vec<&str> = statement.effects.iter_names().map(|(name, _)| name).collect();
    if statement.multi {
        effects.push("multi");
    }
    let uses: Vec<&str> = statement.uses.iter_names().map(|(name, _)| name).collect();
    let column = |names: Vec<&str>| if names.is_empty() { "-".to_owned() } else { sorted(&names.join("+")) };
    format!("{:?} {:?} {} {}", statement.kind, statement.access, column(effects), column(uses))
}

#[test]
fn every_statement_of_the_table_has_its_answer() {
    assert!(ROWS.len() > 450);
    let wrong: Vec<String> = ROWS
        .iter()
        .filter_map(|row| {
            let found = columns(scan(row.statement.as_bytes(), row.dialect));
            (found != row.expected).then(|| {
                format!(
                    "line {}: {}\n  expected {}\n  found    {found}",
                    row.line, row.statement, row.expected
                )
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_text_ends_where_it_ends() {
    // A NUL ends nothing and hides nothing.
    for text in [&b"SELECT 1\0"[..], b"SELECT 1\0 INTO @x", b"SELECT 1 -- \0 INTO @x", b"\0SELECT 1"] {
        let statement = scan(text, Dialect::default());
        assert_eq!(statement.access, Access::Write, "{text:?}");
        assert!(statement.effects.contains(Effects::UNKNOWN), "{text:?}");
    }
    assert!(scan(b"SELECT 'a\0b'", Dialect::default()).is_read());
}

#[test]
fn deep_nesting_ends_in_time() {
    let text = format!("SELECT {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(scan(text.as_bytes(), Dialect::default()).is_read());
    let text = "WITH a (b) AS (".repeat(10_000);
    assert_eq!(scan(text.as_bytes(), Dialect::default()).kind, Kind::With);
    let text = "SELECT 1;".repeat(50_000);
    assert!(scan(text.as_bytes(), Dialect::default()).multi);
    let mut text = vec![b'-'; 2];
    for piece in [
        ";",
        "SELECT ",
        "@@a.",
        "CONNECTION_ID(",
        "GET_LOCK(",
        "/*!",
        "SET a=1,",
        "CREATE EVENT DO BEGIN ",
        "'",
    ] {
        text.truncate(2);
        text.extend(piece.repeat(30_000).bytes());
        weir_sql::fuzzing::fuzz_scan(&text);
    }
}

/// What may stand between two tokens without changing what they mean.
fn filler() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        " ",
        "\t",
        "\r\n",
        "\x0b",
        " /* x */ ",
        "/**/",
        " -- x\n",
        " # it's\n",
        " /* INTO @x; */ ",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn fillers_and_letter_case_change_nothing(
        index in any::<prop::sample::Index>(),
        fillers in prop::collection::vec(filler(), 12),
        upper in prop::collection::vec(any::<bool>(), 9),
    ) {
        let row = index.get(&ROWS);
        let before = scan(row.statement.as_bytes(), row.dialect);
        // Comments in executable comments, and in what has no end, are another matter.
        prop_assume!(!row.statement.contains("/*!") && !row.statement.contains("/*M"));
        prop_assume!(!before.effects.contains(Effects::UNKNOWN) || before.kind == Kind::Other);
        let changed = disturb(row, &fillers, &upper);
        let after = scan(&changed, row.dialect);
        prop_assert_eq!(columns(before), columns(after), "{}", String::from_utf8_lossy(&changed));
    }

    #[test]
    fn any_bytes_keep_the_promises(data in prop::collection::vec(any::<u8>(), 0..200)) {
        weir_sql::fuzzing::fuzz_scan(&data);
    }

    #[test]
    fn any_mix_of_pieces_keeps_the_promises(
        dialect in prop::collection::vec(any::<u8>(), 2),
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..25),
    ) {
        let mut data = dialect;
        for piece in pieces {
            data.extend_from_slice(piece.as_bytes());
        }
        weir_sql::fuzzing::fuzz_scan(&data);
    }
}

const PIECES: &[&str] = &[
    " ",
    " ",
    "SELECT ",
    "INTO ",
    "@x",
    "@@",
    "session",
    ".",
    "session_track_schema",
    "weir_token",
    "=",
    ":=",
    ",",
    "(",
    ")",
    ";",
    "SET ",
    "STATEMENT ",
    "FOR ",
    "BEGIN ",
    "END ",
    "CREATE ",
    "PROCEDURE ",
    "TEMPORARY TABLE ",
    "DROP ",
    "TABLE ",
    "t ",
    "WITH ",
    "AS ",
    "VALUES ",
    "GET_LOCK",
    "RELEASE_LOCK",
    "CONNECTION_ID",
    "f",
    "'a'",
    "'",
    "\"",
    "`",
    "[",
    "]",
    "$",
    "$$",
    "$a$",
    "\\",
    "/*",
    "*/",
    "/*!",
    "/*M!50101 ",
    "/*+ ",
    "--",
    "-- ",
    "#",
    "\n",
    "1",
    "1.5e3",
    "0x1F",
    "x'1F'",
    "NAMES ",
    "GLOBAL ",
    "USE ",
    "KILL ",
    "QUERY ",
    "5",
    "HANDLER ",
    "OPEN ",
    "POINT",
    "JSON_TABLE",
    "COLUMNS ",
    "\u{e9}",
];

/// Puts fillers between tokens and changes the case of letters outside of quotes.
fn disturb(row: &Row, fillers: &[&str], upper: &[bool]) -> Vec<u8> {
    let text = row.statement.as_bytes();
    let mut lexer = Lexer::new(text, row.dialect);
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token();
        if token.kind == TokenKind::End {
            break;
        }
        tokens.push(token);
    }
    let mut changed = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let mut bytes = text[token.range()].to_vec();
        if token.kind == TokenKind::Word {
            for (j, byte) in bytes.iter_mut().enumerate() {
                *byte = if upper[(i + j) % upper.len()] {
                    byte.to_ascii_uppercase()
                } else {
                    byte.to_ascii_lowercase()
                };
            }
        }
        changed.extend_from_slice(&bytes);
        let Some(next) = tokens.get(i + 1) else {
            changed.extend_from_slice(&text[token.end()..]);
            break;
        };
        // Between these, a gap means something: `COUNT (`, `t. into`, `@@ x`, `- -1`, `; #`.
        let meaningful = matches!(
            (token.kind, next.kind),
            (TokenKind::Word, TokenKind::LeftParen)
                | (
                    TokenKind::Dot | TokenKind::SystemVariable | TokenKind::Operator | TokenKind::Semicolon,
                    _
                )
                | (_, TokenKind::Dot | TokenKind::Operator)
        );
        if meaningful {
            changed.extend_from_slice(&text[token.end()..next.start()]);
        } else {
            changed.extend_from_slice(fillers[i % fillers.len()].as_bytes());
        }
    }
    changed
}

#[test]
fn names_of_flags_are_those_of_the_table() {
    // The table writes the names of the flags; a renamed flag must be renamed there.
    let names: Vec<&str> = Effects::all().iter_names().map(|(name, _)| name).collect();
    let table = include_str!("statements.txt");
    for name in names.into_iter().chain(Uses::all().iter_names().map(|(name, _)| name)) {
        assert!(table.contains(name), "no statement of the table has {name}");
    }
}
