//! Bytes that are not what they seem: multi-byte characters, comments in odd places, numbers that end early.

use weir_sql::{Access, Dialect, Effects, LeadBytes, Lexer, TokenKind, Uses, scan};

fn dialect(lead_bytes: LeadBytes) -> Dialect {
    Dialect { lead_bytes, ..Dialect::default() }
}

/// Whether `INTO @x` at the end of `text` is code.
fn assigns(text: &[u8], lead_bytes: LeadBytes) -> bool {
    let statement = scan(text, dialect(lead_bytes));
    assert!(!statement.effects.contains(Effects::UNKNOWN), "{}", text.escape_ascii());
    let assigns = statement.effects.contains(Effects::USER_VARIABLE);
    assert_eq!(statement.access == Access::Read, !assigns, "{}", text.escape_ascii());
    assigns
}

fn unknown(text: &[u8], lead_bytes: LeadBytes) -> bool {
    let statement = scan(text, dialect(lead_bytes));
    assert!(!statement.is_read() || statement.effects.is_empty());
    statement.effects.contains(Effects::UNKNOWN)
}

#[test]
fn a_trail_byte_is_no_backslash() {
    // 0x95 0x5C is one character in sjis and gbk. Elsewhere the backslash escapes the quote.
    let text = b"SELECT '\x95\x5c' INTO @x -- '";
    assert!(assigns(text, LeadBytes::Sjis));
    assert!(assigns(text, LeadBytes::Gbk));
    assert!(!assigns(text, LeadBytes::None));
    assert!(!assigns(text, LeadBytes::Utf8));
    assert!(!assigns(text, LeadBytes::Euc));
    // Not a lead byte in big5.
    assert!(!assigns(text, LeadBytes::Big5));
    let text = b"SELECT '\xa4\x5c' INTO @x -- '";
    assert!(assigns(text, LeadBytes::Big5));
    // Half-width katakana in sjis: one byte.
    assert!(!assigns(text, LeadBytes::Sjis));
}

#[test]
fn a_lead_byte_does_not_take_a_quote_along() {
    // 0x27 is never a trail byte: the string ends.
    for lead_bytes in [LeadBytes::Sjis, LeadBytes::Gbk, LeadBytes::Big5, LeadBytes::Euc, LeadBytes::Utf8] {
        assert!(assigns(b"SELECT '\xa4\x27 INTO @x -- '", lead_bytes));
        assert!(assigns(b"SELECT '\xe3\x27 INTO @x -- '", lead_bytes));
    }
}

#[test]
fn a_lead_byte_after_a_backslash_takes_its_trail_byte_along() {
    // The backslash escapes the lead byte alone; 0x5C then escapes the quote.
    assert!(!assigns(b"SELECT '\\\x95\x5c' INTO @x -- '", LeadBytes::Gbk));
}

#[test]
fn longer_characters_of_gb18030_change_nothing() {
    assert!(assigns(b"SELECT '\x81\x30\x81\x30' INTO @x -- '", LeadBytes::Gbk));
    assert!(assigns(b"SELECT '\x81\x30\x81\x5c' INTO @x -- '", LeadBytes::Gbk));
}

#[test]
fn identifiers_are_read_character_by_character() {
    // 0x60, the backquote, is a trail byte in sjis and gbk.
    assert!(assigns(b"SELECT `\x95\x60` INTO @x -- `", LeadBytes::Gbk));
    assert!(!assigns(b"SELECT `\x95\x60` INTO @x -- `", LeadBytes::None));
    assert!(assigns(b"SELECT a\x95\x60 INTO @x -- `", LeadBytes::Sjis));
    assert!(!assigns("SELECT `été`, été, 名前 FROM `表`".as_bytes(), LeadBytes::Utf8));
    // MySQL would skip as many bytes as the first one announces, MariaDB would not.
    assert!(unknown(b"SELECT `\xe3` INTO @x -- `", LeadBytes::Utf8));
    assert!(unknown(b"SELECT \"\x81\" FROM `\x81`", LeadBytes::Euc));
}

#[test]
fn bytes_that_may_be_spaces_are_not_trusted() {
    // 0xA0 is a space in latin1 and others, 0xFF in cp866: `x INTO @x`.
    assert!(unknown(b"SELECT 1 x\xa0INTO @x", LeadBytes::None));
    assert!(unknown(b"SELECT 1 x\xffINTO @x", LeadBytes::None));
    assert!(unknown(b"SELECT @\xa0INTO @x", LeadBytes::None));
    assert!(unknown(b"SELECT 1 --\xa0, 2\nINTO @x", LeadBytes::None));
    // In strings they are bytes like any other; in UTF-8 they are parts of letters.
    assert!(!assigns(b"SELECT 'x\xa0y\xff'", LeadBytes::None));
    assert!(!assigns("SELECT à FROM t".as_bytes(), LeadBytes::Utf8));
}

#[test]
fn character_sets_have_their_kind() {
    assert_eq!(LeadBytes::of_charset("utf8mb4"), Some(LeadBytes::Utf8));
    assert_eq!(LeadBytes::of_charset("CP932"), Some(LeadBytes::Sjis));
    assert_eq!(LeadBytes::of_charset("gb18030"), Some(LeadBytes::Gbk));
    assert_eq!(LeadBytes::of_charset("latin1"), Some(LeadBytes::None));
    assert_eq!(LeadBytes::of_charset("swe7"), None);
    assert_eq!(LeadBytes::of_charset("utf16"), None);
}

#[test]
fn dashes_are_a_comment_before_space_control_or_end() {
    for text in
        [&b"SELECT 1 -- INTO @x"[..], b"SELECT 1 --\tINTO @x", b"SELECT 1 --\x01INTO @x", b"SELECT 1 --"]
    {
        assert!(!assigns(text, LeadBytes::Utf8), "{}", text.escape_ascii());
    }
    assert!(assigns(b"SELECT 1--1 INTO @x", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 1 --\n INTO @x", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 1 #\n INTO @x", LeadBytes::Utf8));
}

#[test]
fn comments_do_not_nest_and_do_not_hide() {
    assert!(assigns(b"SELECT 1 /* /* */ INTO @x", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 1 /*/ */ INTO @x", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 1 /**/ INTO @x -- */", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 2 */**/ 3 INTO @x", LeadBytes::Utf8));
    // `/*m!` is a plain comment, `/*!` and `/*M!` are not.
    assert!(!assigns(b"SELECT 1 /*m! INTO @x */", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 1 /*M! INTO @x */", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 1 /*!INTO @x*/", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 1 /*!50500INTO @x*/", LeadBytes::Utf8));
}

#[test]
fn hints_with_quotes_around_their_end_are_not_trusted() {
    assert!(!assigns(b"SELECT /*+ BKA(`t`) */ 1", LeadBytes::Utf8));
    assert!(unknown(b"SELECT /*+ BKA(`*/ 1 /*`) */ INTO @x", LeadBytes::Utf8));
}

#[test]
fn executable_comments_that_may_be_skipped_end_alike() {
    // A server that skips the comment ends it at the first `*/`.
    assert!(unknown(b"SELECT 1 /*!100650 '*/ INTO @x -- ' */", LeadBytes::Utf8));
    assert!(unknown(b"SELECT 1 /*!100650 # */ INTO @x\n*/", LeadBytes::Utf8));
    assert!(unknown(b"SELECT 1 /*!50000 `*/` */", LeadBytes::Utf8));
}

#[test]
fn comments_of_other_versions_are_skipped_as_servers_skip_them() {
    // Quotes hide nothing in them, and comments nest once: MariaDB 10.11 and MySQL 9.7.
    assert!(assigns(b"SELECT 1 /*!99999 '*/ INTO @x -- ' */", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 1 /*!99999 -- */ INTO @x", LeadBytes::Utf8));
    assert!(!assigns(b"SELECT 1 /*!999999 /*+ */ INTO @x */", LeadBytes::Utf8));
    assert!(assigns(b"SELECT 1 /*!999999 /* /* */ */ INTO @x", LeadBytes::Utf8));
    assert!(!assigns(b"SELECT 1 /*!99999/*/*/ INTO @x*/", LeadBytes::Utf8));
    assert!(unknown(b"SELECT 1 /*!999999/*/ INTO @x", LeadBytes::Utf8));
}

#[test]
fn tokens_of_one_statement() {
    let text = b"SELECT t.1e5, .5, 1.e3x, x'1F', @a.b, @@c FROM `d``e` WHERE f:=?";
    let mut lexer = Lexer::new(text, Dialect::default());
    let mut found = Vec::new();
    loop {
        let token = lexer.token();
        if token.kind == TokenKind::End {
            break;
        }
        found.push((token.kind, std::str::from_utf8(&text[token.range()]).unwrap()));
    }
    use TokenKind::*;
    let expected = [
        (Word, "SELECT"),
        (Word, "t"),
        (Dot, "."),
        (Word, "1e5"),
        (Comma, ","),
        (Number, ".5"),
        (Comma, ","),
        (Number, "1.e3"),
        (Word, "x"),
        (Comma, ","),
        (Text, "x'1F'"),
        (Comma, ","),
        (UserVariable, "@a.b"),
        (Comma, ","),
        (SystemVariable, "@@"),
        (Word, "c"),
        (Word, "FROM"),
        (Quoted, "`d``e`"),
        (Word, "WHERE"),
        (Word, "f"),
        (Assign, ":="),
        (Placeholder, "?"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn names_after_dots_are_no_keywords() {
    assert!(!assigns(b"SELECT t.into, `t`.into FROM t", LeadBytes::Utf8));
    // With a space behind the dot, servers see the keyword.
    assert!(assigns(b"SELECT t. into @x", LeadBytes::Utf8));
    let statement = scan(b"SELECT t.connection_id FROM t", Dialect::default());
    assert_eq!(statement.uses, Uses::empty());
}
