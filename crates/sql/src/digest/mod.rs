//! Makes digests: the text of a statement without its literals, and the hash that names it.
//!
//! They are what ProxySQL 2.7 makes of the same statement, byte for byte, so that rules and dashboards that
//! name a digest go on working. The rules were found by trying statements on it; where they look strange
//! (and some do), that is why. `tests/digests.rs` has the statements.
//!
//! A digest is made in four steps, each on the result of the one before:
//! literals and comments (`literals.rs`), blanks and signs (`spacing.rs`), lists and rows of lists (`grouping.rs`).

mod grouping;
mod literals;
mod spacing;
mod spooky;

/// The options of digests: the `mysql-query_digests_*` variables, with their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestOptions {
    /// Letters of ASCII become small.
    pub lowercase: bool,
    /// NULL is a literal.
    pub replace_null: bool,
    /// Digits in names become `?`, a run of them one.
    pub no_digits: bool,
    /// `/* */` comments stay.
    pub keep_comment: bool,
    /// So many bytes of the text are kept, shown and hashed.
    pub max_digest_length: usize,
    /// So many bytes of the text are made at all. The whole statement is read for them, however long it is.
    pub max_query_length: usize,
    /// So many literals of a long list are shown; 0 shows all.
    pub grouping_limit: usize,
    /// So many groups of a long row are shown; 0 shows all.
    pub groups_grouping_limit: usize,
}

impl Default for DigestOptions {
    fn default() -> Self {
        Self {
            lowercase: false,
            replace_null: false,
            no_digits: false,
            keep_comment: false,
            max_digest_length: 2048,
            max_query_length: 65_000,
            grouping_limit: 3,
            groups_grouping_limit: 10,
        }
    }
}

/// A longer buffer, left by a long statement, is given back at the next one.
const BUFFER_BYTES_KEPT: usize = 64 * 1024;

/// The digest of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest<'a> {
    /// At most `max_digest_length` bytes; not always UTF-8.
    pub text: &'a [u8],
    /// SpookyHash V2 of the text, shown as `0x` and sixteen digits.
    pub hash: u64,
}

/// Makes digests. It keeps its buffer, so that it stops allocating once it has seen a long statement.
///
/// ```
/// use weir_sql::{DigestOptions, Digester};
///
/// let mut digester = Digester::new(DigestOptions::default());
/// let digest = digester.digest(b"SELECT c FROM t WHERE id IN (1, 2, 3, 4, 5)");
/// assert_eq!(digest.text, b"SELECT c FROM t WHERE id IN (?,?,?,...)");
/// assert_eq!(digester.digest(b"SELECT 1").hash, 0x1C46_AE52_9DD5_A40E);
/// ```
#[derive(Debug)]
pub struct Digester {
    options: DigestOptions,
    text: Vec<u8>,
}

impl Digester {
    /// A digester with the options as they are; nothing is allocated yet.
    pub fn new(options: DigestOptions) -> Self {
        Self { options, text: Vec::new() }
    }

    /// The options it was made with.
    pub fn options(&self) -> &DigestOptions {
        &self.options
    }

    /// The text of the last digest.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The digest of one statement. Any bytes have one.
    pub fn digest(&mut self, statement: &[u8]) -> Digest<'_> {
        let options = &self.options;
        self.text.clear();
        self.text.shrink_to(BUFFER_BYTES_KEPT);
        literals::replace(statement, options, &mut self.text);
        let has_list = spacing::tighten(&mut self.text, options);
        if has_list && grouping::shorten_lists(&mut self.text, options.grouping_limit) {
            grouping::shorten_groups(&mut self.text, options.grouping_limit, options.groups_grouping_limit);
        }
        self.text.truncate(options.max_query_length);
        trim(&mut self.text);
        self.text.truncate(options.max_digest_length);
        Digest { text: &self.text, hash: spooky::hash64(&self.text) }
    }
}

/// Takes blanks and semicolons off the end (but leaves one byte), and all from a NUL byte on.
fn trim(text: &mut Vec<u8>) {
    while text.len() > 1 && matches!(text.last(), Some(b' ' | b';')) {
        text.pop();
    }
    if let Some(end) = text.iter().position(|&byte| byte == 0) {
        text.truncate(end);
    }
}

/// What names consist of: letters, digits, `_` and `$`, of ASCII only.
#[inline]
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}
