//! Checks what must hold for any bytes. The fuzz target and the tests of its corpus call it.

use crate::{
    Access, Dialect, DigestOptions, Digester, Effects, Family, Kind, LeadBytes, Lexer, Server, TokenKind,
    Uses, assignments, diagnostics_request, kill_target, mask_literals, mask_secrets, named_effects,
    names_local_file, scan, stays_in_session, substitutions, use_schema,
};

/// Reads `data` as a dialect (two bytes) and a statement, with everything this crate has. Panics if a promise
/// does not hold.
pub fn fuzz_scan(data: &[u8]) {
    let Some((&[modes, charset], text)) = data.split_first_chunk() else { return };
    let dialect = Dialect {
        ansi_quotes: modes & 1 != 0,
        brackets: modes & 16 != 0,
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
        server: match (modes & 8 != 0, modes & 32 != 0) {
            (true, true) => Server::mysql(9, 7),
            (true, false) => Server::mysql(8, 4),
            (false, true) => Server::UNKNOWN,
            (false, false) => Server::mariadb(11, 4),
        },
    };
    check_tokens(text, dialect);
    check_scan(text, dialect);
    check_masks(text);
}

/// A mask is there where something was masked, and texts do not grow beyond their masks.
fn check_masks(text: &[u8]) {
    let masked = mask_literals(text, |_| false);
    assert!(masked.len() <= text.len() + 5 * text.len(), "{masked:?}");
    if let Some(masked) = mask_secrets(text) {
        assert!(masked.windows(5).any(|window| window == b"'***'"), "{masked:?}");
    }
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
    if stays_in_session(text, dialect) {
        let shows = matches!(
            statement.kind,
            Kind::Show
                | Kind::ShowWarnings
                | Kind::ShowErrors
                | Kind::ShowCountWarnings
                | Kind::ShowCountErrors
        );
        assert!(shows || matches!(statement.kind, Kind::Set | Kind::SetTransaction), "{statement:?}");
    }
    if names_local_file(text, dialect, b"data") {
        assert!(text.windows(6).any(|word| word.eq_ignore_ascii_case(b"INFILE")));
    }
    if let Some(request) = diagnostics_request(text, dialect) {
        assert_eq!(statement.kind, Kind::GetDiagnostics);
        assert!(!statement.multi && statement.effects.contains(Effects::USER_VARIABLE), "{statement:?}");
        for item in &request.items {
            assert_eq!(text.get(item.target.start), Some(&b'@'));
        }
    }
    if kill_target(text, dialect).is_some() {
        assert_eq!(statement.kind, Kind::Kill);
    }
    if dialect.server.family == Family::MySql && statement.is_read() {
        assert!(!statement.effects.contains(Effects::SEQUENCE));
    }
}

/// Reads `data` as options (four bytes) and a statement, and digests it. Panics if a promise does not hold.
pub fn fuzz_digest(data: &[u8]) {
    let Some((&[flags, length, list, groups], text)) = data.split_first_chunk() else { return };
    let defaults = DigestOptions::default();
    let options = DigestOptions {
        lowercase: flags & 1 != 0,
        replace_null: flags & 2 != 0,
        no_digits: flags & 4 != 0,
        keep_comment: flags & 8 != 0,
        max_digest_length: if flags & 16 != 0 { usize::from(length) } else { defaults.max_digest_length },
        max_query_length: if flags & 32 != 0 { usize::from(length) } else { defaults.max_query_length },
        grouping_limit: usize::from(list % 8),
        groups_grouping_limit: usize::from(groups % 8),
    };
    let mut digester = Digester::new(options);
    let digest = digester.digest(text);
    assert!(digest.text.len() <= options.max_digest_length.min(options.max_query_length).min(text.len()));
    assert!(!digest.text.contains(&0));
    if options.lowercase && !options.keep_comment && !contains(text, b"/*") {
        assert!(!digest.text.iter().any(u8::is_ascii_uppercase));
    }
    if options.no_digits {
        assert!(!digest.text.iter().any(u8::is_ascii_digit));
    }
    if !contains(text, b"/*") {
        // Outside executable comments no string is left.
        assert!(!digest.text.iter().any(|byte| matches!(byte, b'\'' | b'"' | b'\t' | b'\n' | b'\r')));
    }
    let (kept, hash) = (digest.text.to_vec(), digest.hash);
    let again = digester.digest(text);
    assert!(again.text == kept && again.hash == hash, "the digester remembers something");
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|bytes| bytes == part)
}
