//! What must hold for any bytes. The fuzz target and the tests of its corpus call it.

use crate::{
    Access, Dialect, Effects, Family, Kind, LeadBytes, Lexer, Server, TokenKind, Uses, assignments,
    kill_target, named_effects, names_local_file, scan, substitutions, use_schema,
};

/// Reads `data` as a dialect (two bytes) and a statement, with everything this crate has. Panics if a promise
/// does not hold.
pub fn fuzz_scan(data: &[u8]) {
    let Some((&[modes, charset], text)) = data.split_first_chunk() else { return };
    let dialect = Dialect {
        ansi_quotes: modes & 1 != 0,
        no_backslash_escapes: modes & 2 != 0,
        ignore_space: modes & 4 != 0,
        lead_bytes: match charset % 6 {
            0 => LeadBytes::Utf8,
            1 => LeadBytes::None,
            2 => LeadBytes::Euc,
            3 => LeadBytes::Sjis,
            4 => LeadBytes::Gbk,
            _ => LeadBytes::Big5,
        },
        server: if modes & 8 != 0 { Server::mysql(8, 4) } else { Server::mariadb(11, 4) },
    };
    check_tokens(text, dialect);
    check_scan(text, dialect);
}

fn check_tokens(text: &[u8], dialect: Dialect) {
    let mut lexer = Lexer::new(text, dialect);
    let mut end = 0;
    loop {
        let token = lexer.token();
        assert!(
            end <= token.start() && token.start() <= token.end() && token.end() <= text.len(),
            "{token:?}"
        );
        if token.kind == TokenKind::End {
            break;
        }
        assert!(token.start() < token.end(), "{token:?} has no bytes");
        end = token.end();
    }
}

fn check_scan(text: &[u8], dialect: Dialect) {
    let statement = scan(text, dialect);
    if statement.access == Access::Read {
        assert!(matches!(statement.kind, Kind::Select | Kind::With | Kind::Values | Kind::Table));
        assert!(Effects::FOUND_ROWS_CALC.contains(statement.effects), "{statement:?}");
        assert!(!statement.multi);
        assert!(!statement.uses.contains(Uses::SYSTEM_VARIABLE));
    }
    if let Some(assignments) = assignments(text, dialect) {
        assert_eq!(statement.kind, Kind::Set);
        let mut end = 0;
        for assignment in assignments {
            let (range, value) = (assignment.range, assignment.value_range);
            assert!(end <= range.start && range.start <= value.start);
            assert!(value.start < value.end && value.end <= range.end && range.end <= text.len());
            assert!(!assignment.user_variable || statement.effects.contains(Effects::USER_VARIABLE));
            end = range.end;
        }
    }
    let mut end = 0;
    for substitution in substitutions(text, dialect) {
        assert!(end <= substitution.range.start && substitution.range.end <= text.len());
        assert!(!statement.uses.is_empty(), "{substitution:?} of {statement:?}");
        end = substitution.range.end;
    }
    if !named_effects(text, dialect).is_empty() {
        assert!(!statement.effects.is_empty(), "{statement:?}");
    }
    if use_schema(text, dialect).is_some() {
        assert_eq!(statement.kind, Kind::Use);
    }
    if names_local_file(text, dialect, b"data") {
        assert!(text.windows(6).any(|word| word.eq_ignore_ascii_case(b"INFILE")));
    }
    if kill_target(text, dialect).is_some() {
        assert_eq!(statement.kind, Kind::Kill);
    }
    if dialect.server.family == Family::MySql && statement.is_read() {
        assert!(!statement.effects.contains(Effects::SEQUENCE));
    }
}
