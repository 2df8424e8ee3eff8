//! Scans the assignments of SET.
//!
//! Source: "SET Syntax for Variable Assignment" of the MySQL manual and "SET" of the MariaDB Knowledge Base.

use super::{Scanner, Tokens};
use crate::detail::Scope;
use crate::lex::{Token, TokenKind};
use crate::scan::observe::{is_session_track, is_weirs};
use crate::statement::{Effects, Kind};
use crate::words::Word;

/// The kind of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemKind {
    /// `@x`
    User,
    /// A variable.
    System,
    /// NAMES, whose value is the rest.
    Names,
    /// CHARACTER SET or CHARSET, whose value is the rest.
    CharacterSet,
    /// ROLE, whose value is the rest. In a list of several on MariaDB only, as the next two.
    Role,
    /// DEFAULT ROLE, whose value is the rest.
    DefaultRole,
    /// PASSWORD, whose value is the rest.
    Password,
}

/// One assignment, with offsets into the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: ItemKind,
    pub(crate) scope: Scope,
    /// Written `@@name`.
    pub(crate) at_signs: bool,
    /// From the scope or the `@` to the end of the value.
    pub(crate) range: (usize, usize),
    /// The name, with its quotes and with the dot of a structured variable.
    pub(crate) name: (usize, usize),
    pub(crate) value: (usize, usize),
}

/// Walks over assignments, from the first token of the first one to the end of the statement, or, if
/// `until_for`, to the FOR after them.
pub(crate) fn items<T: Tokens>(tokens: &mut T, until_for: bool, visit: &mut dyn FnMut(Item)) {
    // A scope without `@@` holds for the bare names after it too.
    let mut scope = Scope::Unscoped;
    loop {
        let item = item(tokens, scope, until_for);
        if item.kind == ItemKind::System && !item.at_signs {
            scope = item.scope;
        }
        visit(item);
        if tokens.now().kind != TokenKind::Comma {
            return;
        }
        tokens.advance();
    }
}

fn item<T: Tokens>(tokens: &mut T, scope: Scope, until_for: bool) -> Item {
    let start = tokens.now().start();
    let depth = tokens.depth();
    let mut item = Item {
        kind: ItemKind::System,
        scope,
        at_signs: false,
        range: (start, start),
        name: (start, start),
        value: (start, start),
    };
    target(tokens, &mut item);
    if matches!(tokens.now().kind, TokenKind::Equals | TokenKind::Assign) {
        tokens.advance();
    }
    item.value.0 = tokens.now().start();
    item.value.1 = tokens.now().start();
    while !tokens.at_end() {
        let now = tokens.now();
        let outermost = tokens.depth() <= depth;
        if outermost && (now.kind == TokenKind::Comma || (until_for && now.word == Word::FOR)) {
            break;
        }
        item.value.1 = now.end();
        tokens.advance();
    }
    item.range.1 = item.value.1.max(item.name.1);
    item
}

/// What stands before the `=`.
fn target<T: Tokens>(tokens: &mut T, item: &mut Item) {
    let now = tokens.now();
    match now.kind {
        TokenKind::UserVariable => {
            item.kind = ItemKind::User;
            item.name = (now.start(), now.end());
            tokens.advance();
            return;
        }
        TokenKind::SystemVariable => {
            item.at_signs = true;
            item.scope = Scope::Unscoped;
            tokens.advance();
        }
        _ => {}
    }
    let first = tokens.now();
    item.name = (first.start(), first.end());
    if !first.is_name() {
        return;
    }
    tokens.advance();
    if let Some(scope) = scope_of(first.word) {
        if item.at_signs && tokens.now().kind == TokenKind::Dot {
            tokens.advance();
            item.scope = scope;
            variable(tokens, item);
            return;
        }
        if !item.at_signs && tokens.now().is_name() {
            item.scope = scope;
            variable(tokens, item);
            return;
        }
    }
    let is_variable = matches!(tokens.now().kind, TokenKind::Equals | TokenKind::Assign);
    match first.word {
        Word::NAMES => item.kind = ItemKind::Names,
        Word::ROLE if !item.at_signs && !is_variable => item.kind = ItemKind::Role,
        // `PASSWORD = ...` sets one, too.
        Word::PASSWORD if !item.at_signs => item.kind = ItemKind::Password,
        Word::DEFAULT if tokens.now().word == Word::ROLE => {
            item.kind = ItemKind::DefaultRole;
            item.name.1 = tokens.now().end();
            tokens.advance();
        }
        Word::CHARSET => item.kind = ItemKind::CharacterSet,
        Word::CHARACTER if tokens.now().word == Word::SET => {
            item.kind = ItemKind::CharacterSet;
            item.name.1 = tokens.now().end();
            tokens.advance();
        }
        _ => component(tokens, item),
    }
}

/// The name of a variable after its scope.
fn variable<T: Tokens>(tokens: &mut T, item: &mut Item) {
    let name = tokens.now();
    item.name = (name.start(), name.end());
    if name.is_name() {
        tokens.advance();
        component(tokens, item);
    }
}

/// The second half of a structured variable: `keycache.key_buffer_size`.
fn component<T: Tokens>(tokens: &mut T, item: &mut Item) {
    if tokens.now().kind != TokenKind::Dot {
        return;
    }
    tokens.advance();
    if tokens.now().is_name() {
        item.name.1 = tokens.now().end();
        tokens.advance();
    }
}

fn scope_of(word: Word) -> Option<Scope> {
    match word {
        Word::GLOBAL => Some(Scope::Global),
        Word::SESSION | Word::LOCAL => Some(Scope::Session),
        Word::PERSIST | Word::PERSIST_ONLY => Some(Scope::Persist),
        _ => None,
    }
}

impl Scanner<'_> {
    /// After SET.
    pub(super) fn set(&mut self) -> Kind {
        let first = self.now();
        match first.word {
            Word::STATEMENT => {
                self.advance();
                self.assign(true);
                if self.now().word == Word::FOR {
                    self.advance();
                    // What it sets is reported together with what is over when its reply comes.
                    if self.now().word == Word::SET {
                        self.effects |= Effects::UNREADABLE_VARIABLE;
                    }
                    self.statement();
                }
                return Kind::SetStatement;
            }
            Word::RESOURCE => {
                self.effects |= Effects::UNREADABLE_VARIABLE;
                return Kind::SetResourceGroup;
            }
            Word::TRANSACTION => {
                self.effects |= Effects::NEXT_TRANSACTION;
                return Kind::SetTransaction;
            }
            _ => {}
        }
        // SET SESSION TRANSACTION: what follows the scope is the kind of the statement.
        self.assign(false)
    }

    /// Collects the effects of the assignments. Returns the kind of the most that is among them, wherever it stands.
    fn assign(&mut self, for_one_statement: bool) -> Kind {
        let text = self.lexer.text();
        let mut effects = Effects::empty();
        let mut transaction = false;
        let mut items_count = 0;
        let [mut role, mut default_role, mut password] = [false; 3];
        self.no_variables_read = true;
        items(&mut Targets(self), for_one_statement, &mut |item| {
            let name = text.get(item.name.0..item.name.1).unwrap_or_default();
            items_count += 1;
            role |= item.kind == ItemKind::Role;
            default_role |= item.kind == ItemKind::DefaultRole;
            password |= item.kind == ItemKind::Password;
            transaction |= item.scope != Scope::Unscoped && name.eq_ignore_ascii_case(b"transaction");
            effects |= effects_of(&item, name);
        });
        self.no_variables_read = false;
        if (password || default_role) && items_count > 1 {
            // The rest of the list may be done although the statement fails at a table of accounts (MariaDB 10.11).
            effects |= Effects::UNKNOWN;
        }
        self.effects |= effects;
        match () {
            () if password => Kind::SetPassword,
            () if default_role => Kind::SetDefaultRole,
            () if role => Kind::SetRole,
            () if transaction => Kind::SetTransaction,
            () => Kind::Set,
        }
    }
}

/// Tells the scanner which tokens of the assignments are targets.
struct Targets<'s, 'a>(&'s mut Scanner<'a>);

impl Tokens for Targets<'_, '_> {
    fn now(&self) -> Token {
        self.0.now()
    }

    fn previous(&self) -> Token {
        self.0.previous()
    }

    fn depth(&self) -> u32 {
        self.0.depth
    }

    fn advance(&mut self) {
        match self.0.now().kind {
            TokenKind::Equals | TokenKind::Assign => self.0.no_variables_read = false,
            TokenKind::Comma if self.0.depth == 0 => self.0.no_variables_read = true,
            _ => {}
        }
        self.0.advance();
    }
}

/// What an assignment does that the server does not report, or cannot be asked for.
fn effects_of(item: &Item, name: &[u8]) -> Effects {
    match item.kind {
        ItemKind::User => return Effects::USER_VARIABLE,
        ItemKind::Role => return Effects::ROLE_CHANGED,
        ItemKind::DefaultRole | ItemKind::Password => return Effects::empty(),
        ItemKind::System | ItemKind::Names | ItemKind::CharacterSet => {}
    }
    let name = name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`")).unwrap_or(name);
    if is_weirs(name) {
        return Effects::VIRTUAL_VARIABLE;
    }
    if !matches!(item.scope, Scope::Session | Scope::Unscoped) {
        return Effects::empty();
    }
    let is_untracked = item.at_signs && item.scope == Scope::Unscoped;
    let untracked = if is_untracked { Effects::UNTRACKED } else { Effects::empty() };
    let is = |names: &[&str]| names.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()));
    if is_session_track(name) {
        Effects::VIRTUAL_VARIABLE
    } else if is(&["insert_id", "gtid_seq_no"]) {
        Effects::ONE_SHOT | untracked
    } else if is(&["last_insert_id", "identity"]) {
        Effects::LAST_INSERT_ID_SET | untracked
    } else if is(&["profiling", "profiling_history_size", "optimizer_trace"]) {
        Effects::PROFILING | untracked
    } else if is(&["rand_seed1", "rand_seed2", "pseudo_slave_mode", "pseudo_replica_mode"])
        || is(&["debug", "debug_dbug", "debug_sync"])
    {
        Effects::UNREADABLE_VARIABLE | untracked
    } else if is_untracked
        && is(&["tx_isolation", "transaction_isolation", "tx_read_only", "transaction_read_only"])
    {
        // "SET @@var": the next transaction only ("SET TRANSACTION Statement" of the MySQL manual).
        Effects::NEXT_TRANSACTION
    } else {
        untracked
    }
}
