//! Scans a text: statement after statement, and within one token after token.

mod call;
mod multi_statement;
mod observe;
mod routine;
mod set;
mod verb;

pub use multi_statement::Several;
pub(crate) use observe::is_session_track;
pub use observe::{COMMIT_OUTCOME, CONSISTENCY, OWN_VARIABLES, REPLAY, TOKEN};
pub(crate) use routine::{skip_body, skip_schedule};
pub(crate) use set::{Item, ItemKind, items};
pub(crate) use verb::created_object;

use crate::dialect::Dialect;
use crate::lex::{Lexer, Token, TokenKind, is_space};
use crate::statement::{Access, Counts, Effects, Kind, Statement, Uses};

/// Reads `text`, the body of a COM_QUERY or COM_STMT_PREPARE, as the server of `dialect` would.
///
/// Any bytes are accepted, in time proportional to their number. What cannot be read with certainty is
/// [`Access::Write`] with [`Effects::UNKNOWN`].
pub fn scan(text: &[u8], dialect: Dialect) -> Statement {
    let mut scanner = Scanner::new(text, dialect);
    let mut statement = Statement { kind: Kind::Empty, access: Kind::Empty.access(), ..Statement::default() };
    let mut ended = false;
    let mut kills = false;
    let mut is_opaque = false;
    loop {
        scanner.start();
        if scanner.now().kind == TokenKind::End {
            break;
        }
        if scanner.now().kind != TokenKind::Semicolon {
            let kind = scanner.statement();
            scanner.rest();
            kills |= kind == Kind::Kill;
            statement.hidden_code |= kind.may_run_hidden_code() || scanner.reads_tables;
            if statement.kind == Kind::Empty {
                statement.kind = kind;
                statement.access = kind.access();
            }
        }
        if scanner.now().kind == TokenKind::End {
            break;
        }
        if std::mem::take(&mut scanner.has_body) {
            is_opaque |= more_follows(text, scanner.now().end());
        }
        if !ended {
            ended = true;
            scanner.multi |= more_follows(text, scanner.now().end());
        }
    }
    statement.multi = scanner.multi;
    if is_opaque {
        scanner.effects |= Effects::ROUTINE;
        scanner.effects -= Effects::ENDINGS;
    }
    let flaws = scanner.lexer.flaws();
    if flaws.malformed {
        scanner.effects |= Effects::UNKNOWN;
    }
    if flaws.uncertain_comment {
        // It may be another statement than its words say: COMMIT or nothing at all.
        statement.kind = Kind::Other;
        statement.access = Access::Write;
        scanner.effects |= Effects::UNKNOWN;
        scanner.effects -= Effects::ENDINGS;
    }
    let doubtful = !scanner.sure || flaws.executable_comment || flaws.malformed || statement.multi;
    if doubtful && (statement.access == Access::Read || statement.multi) {
        statement.access = Access::Write;
    }
    if scanner.inspects && statement.access == Access::Read {
        statement.access = Access::Inspect;
    }
    statement.effects = scanner.effects;
    statement.assigns_insert_id = scanner.assigns_insert_id;
    statement.effects.set(Effects::KILL, kills && statement.multi);
    statement.uses = scanner.uses;
    statement.counts = scanner.counts;
    statement
}

/// The verbs of all statements of a text, one for each reply of a server at least. Of what is neither a statement nor cut
/// off (a comment behind the last `;`) it is [`Kind::Empty`].
pub fn kinds(text: &[u8], dialect: Dialect) -> Vec<Kind> {
    let mut scanner = Scanner::new(text, dialect);
    let mut kinds = Vec::new();
    loop {
        scanner.start();
        if scanner.now().kind == TokenKind::End {
            break;
        }
        if scanner.now().kind != TokenKind::Semicolon {
            kinds.push(scanner.statement());
            scanner.rest();
        }
        if scanner.now().kind == TokenKind::End {
            return kinds;
        }
        if !more_follows(text, scanner.now().end()) {
            return kinds;
        }
    }
    kinds.push(Kind::Empty);
    kinds
}

/// Whether more than spaces and `;` follow a `;` that ends at `at`.
///
/// Servers cut these off the end of a text. After anything else, even a comment, they look for one more
/// statement, and send one more reply: ER_EMPTY_QUERY, if there is none.
fn more_follows(text: &[u8], at: usize) -> bool {
    text.get(at..).unwrap_or_default().iter().any(|&byte| byte != b';' && !is_space(byte))
}

/// A stream of tokens with one behind: what the parts of the grammar are written against that both the scan
/// and the slower functions need.
pub(crate) trait Tokens {
    /// The token that is looked at.
    fn now(&self) -> Token;
    /// The one before it in this statement, or [`Token::NONE`].
    fn previous(&self) -> Token;
    /// How many parentheses are open.
    fn depth(&self) -> u32;
    /// Goes to the next token.
    fn advance(&mut self);

    /// Whether the statement has ended.
    fn at_end(&self) -> bool {
        matches!(self.now().kind, TokenKind::End | TokenKind::Semicolon)
    }
}

/// The places where calls of functions may stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// Anywhere.
    Anywhere,
    /// Not before SELECT: in definitions, names before `(` are tables, columns, keys or types.
    AfterSelect,
    /// Not before SELECT, VALUES or SET: names before `(` are tables.
    AfterValues,
    /// Nowhere.
    Nowhere,
}

/// What a call is watched for until its closing parenthesis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// A POINT, with the commas so far.
    Point(u32),
    /// A JSON_TABLE whose COLUMNS have not come yet.
    JsonTable,
}

struct Scanner<'a> {
    lexer: Lexer<'a>,
    dialect: Dialect,
    effects: Effects,
    uses: Uses,
    counts: Counts,
    /// A LIMIT has come.
    is_limited: bool,
    /// Nothing was found yet that a sure read must not have.
    sure: bool,
    /// A system variable is read, whose value is that of one session or server.
    inspects: bool,
    /// More follows a `;`.
    multi: bool,
    /// A query from tables or views has come, on its own or within something else.
    reads_tables: bool,
    /// `LAST_INSERT_ID(expr)` has come.
    assigns_insert_id: bool,
    /// The statement defines a routine, a trigger or an event: where it ends is a guess, if anything follows.
    has_body: bool,

    // Of the current statement:
    /// The last tokens, each where it was put: to copy a token that was just written is what takes longest
    /// about it.
    recent: [Token; 4],
    /// The current one is `recent[turn % 4]`.
    turn: usize,
    depth: u32,
    calls: Calls,
    /// Bit n: at depth n, a list of common table expressions has begun and its query has not.
    common_tables: u64,
    /// The call that is watched, and the depth inside it.
    watched: Option<(Watched, u32)>,
    /// The next token decides about the previous one: INTO, INSERT, LAST_INSERT_ID(.
    pending: Pending,
    /// Inside the name after `@@`.
    in_system_variable: bool,
    /// Where `@` and `@@` stand before what is assigned, or before hosts of accounts.
    no_variables_read: bool,
    /// User variables are being assigned, wherever they stand.
    assigns_variables: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    Nothing,
    /// INTO that does not follow INSERT or the like.
    Into,
    /// INSERT or REPLACE, which are also functions.
    Insert,
    /// `LAST_INSERT_ID(`
    LastInsertId,
    /// `(` of a constructor that must have arguments.
    Geometries,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a [u8], dialect: Dialect) -> Self {
        Self {
            lexer: Lexer::new(text, dialect),
            dialect,
            effects: Effects::empty(),
            uses: Uses::empty(),
            counts: Counts::empty(),
            is_limited: false,
            sure: true,
            inspects: false,
            multi: false,
            reads_tables: false,
            assigns_insert_id: false,
            has_body: false,
            recent: [Token::NONE; 4],
            turn: 0,
            depth: 0,
            calls: Calls::Anywhere,
            common_tables: 0,
            watched: None,
            pending: Pending::Nothing,
            in_system_variable: false,
            no_variables_read: false,
            assigns_variables: false,
        }
    }

    /// Nothing of earlier statements counts any more; the current token is looked at anew.
    fn forget_statements(&mut self) {
        self.effects = Effects::empty();
        self.uses = Uses::empty();
        self.counts = Counts::empty();
        self.reads_tables = false;
        self.assigns_insert_id = false;
        self.observe();
    }

    /// Goes to the first token after the start or after a `;`.
    fn start(&mut self) {
        self.recent = [Token::NONE; 4];
        self.depth = 0;
        self.calls = Calls::Anywhere;
        self.common_tables = 0;
        self.watched = None;
        self.pending = Pending::Nothing;
        self.in_system_variable = false;
        self.no_variables_read = false;
        self.assigns_variables = false;
        Tokens::advance(self);
    }

    /// Goes to the end of the statement.
    fn rest(&mut self) {
        while !self.at_end() {
            self.advance();
        }
    }

    /// The token `back` tokens before the current one, at most three.
    #[inline]
    fn behind(&self, back: usize) -> &Token {
        &self.recent[self.turn.wrapping_sub(back) % 4]
    }

    fn text_of(&self, token: Token) -> &'a [u8] {
        self.lexer.text().get(token.range()).unwrap_or_default()
    }
}

impl Tokens for Scanner<'_> {
    #[inline]
    fn now(&self) -> Token {
        *self.behind(0)
    }

    #[inline]
    fn previous(&self) -> Token {
        *self.behind(1)
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    #[inline]
    fn advance(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        self.recent[self.turn % 4] = self.lexer.token();
        self.observe();
    }
}
