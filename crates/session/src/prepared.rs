//! Shares prepared statements over connections: one server-side statement per text and meaning, prepared where it
//! runs, closed least-recently-used first.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use weir_protocol::error::ServerError;
use weir_sql::{Server, Statement};

use crate::state::State;

/// Entries of the registry before those that nobody holds are dropped.
const REGISTRY_SWEEP: usize = 1024;
/// Bytes of text of entries that nobody holds, beyond as many as are held, before they are dropped.
const REGISTRY_SWEEP_BYTES: usize = 16 << 20;
/// What a statement takes beside its text and the types of its parameters, about.
const STATEMENT_BYTES: usize = 256;

/// The meaning of a prepared statement: its text and what the text was parsed under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Meaning {
    text: Box<[u8]>,
    schema: Box<[u8]>,
    /// sql_mode, character_set_client, character_set_connection, collation_connection.
    modes: [Option<Box<str>>; 4],
    /// The servers as which it was scanned.
    reads_as: Server,
}

/// Variables that a server reads while it parses a statement.
const PARSE_VARIABLES: [&str; 4] =
    ["sql_mode", "character_set_client", "character_set_connection", "collation_connection"];

impl Meaning {
    fn new(text: &[u8], state: &State, reads_as: Server) -> Self {
        Self {
            text: text.into(),
            schema: state.schema().into(),
            modes: PARSE_VARIABLES.map(|name| state.variable(name).map(Into::into)),
            reads_as,
        }
    }

    fn holds_in(&self, state: &State) -> bool {
        // What was prepared without a schema names none that it would need.
        (self.schema.is_empty() || *self.schema == *state.schema())
            && PARSE_VARIABLES
                .iter()
                .zip(&self.modes)
                .all(|(name, mode)| state.variable(name) == mode.as_deref())
    }
}

/// A statement that some session prepared, shared by all sessions that mean the same.
#[derive(Debug)]
pub struct Prepared {
    /// Unique in its registry.
    id: u64,
    meaning: Rc<Meaning>,
    /// Bytes of text that somebody holds, of all statements of its registry.
    held_bytes: Rc<Cell<usize>>,
    /// What the scanner says of the text.
    pub statement: Statement,
    /// The hash of the digest of what the client sent, if digests are made.
    pub digest: Cell<Option<u64>>,
    /// The text of that digest.
    pub digest_text: RefCell<Box<[u8]>>,
}

impl Prepared {
    /// The statement's text.
    pub fn text(&self) -> &[u8] {
        &self.meaning.text
    }

    /// Whether preparing the text in this state gives this very statement.
    pub fn can_be_prepared_in(&self, state: &State) -> bool {
        self.meaning.holds_in(state)
    }

    /// The schema that it was prepared in; empty for none.
    pub fn schema(&self) -> &[u8] {
        &self.meaning.schema
    }

    /// The nearest state to `present` that the text can be prepared in. What does not matter for that stays: to
    /// set autocommit, for one, would commit the transaction that the statement is to run in.
    pub fn state_to_prepare_in(&self, present: &State) -> State {
        let mut state = present.clone();
        if !self.meaning.schema.is_empty() {
            state.assign_schema(&self.meaning.schema);
        }
        for (name, mode) in PARSE_VARIABLES.iter().zip(&self.meaning.modes) {
            match mode {
                Some(value) => state.assign(name, value),
                None => state.unassign(name),
            }
        }
        state
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.held_bytes.set(self.held_bytes.get() - self.text().len());
    }
}

/// All prepared statements of one worker.
#[derive(Debug, Default)]
pub struct Registry {
    statements: HashMap<Rc<Meaning>, Weak<Prepared>>,
    next_id: u64,
    /// Bytes of text that somebody holds,
    held_bytes: Rc<Cell<usize>>,
    /// and of all entries.
    bytes: usize,
}

impl Registry {
    /// How many statements somebody has.
    pub fn used(&self) -> usize {
        self.statements.values().filter(|prepared| prepared.strong_count() > 0).count()
    }

    /// The statement of this text under this state, as it was scanned for such servers. None if with it there would be more than so many bytes of text.
    pub fn intern(
        &mut self,
        text: &[u8],
        state: &State,
        (statement, reads_as): (Statement, Server),
        bytes_max: usize,
    ) -> Option<Rc<Prepared>> {
        let meaning = Meaning::new(text, state, reads_as);
        if let Some(known) = self.statements.get(&meaning).and_then(Weak::upgrade) {
            return Some(known);
        }
        let held = self.held_bytes.get() + text.len();
        if held > bytes_max {
            return None;
        }
        let is_due = self.statements.len() >= REGISTRY_SWEEP && self.statements.len().is_power_of_two();
        if is_due || self.bytes > 2 * held + REGISTRY_SWEEP_BYTES {
            self.statements.retain(|_, prepared| prepared.strong_count() > 0);
            self.bytes = self.held_bytes.get();
        }
        self.next_id += 1;
        self.held_bytes.set(held);
        self.bytes += text.len();
        let meaning = Rc::new(meaning);
        let prepared = Rc::new(Prepared {
            id: self.next_id,
            meaning: meaning.clone(),
            held_bytes: self.held_bytes.clone(),
            statement,
            digest: Cell::new(None),
            digest_text: RefCell::default(),
        });
        self.statements.insert(meaning, Rc::downgrade(&prepared));
        Some(prepared)
    }
}

/// A session's own view of a prepared statement.
#[derive(Debug)]
pub struct ClientStatement {
    /// What it is.
    pub prepared: Rc<Prepared>,
    /// The client's own text, by which each execution goes, where `prepared` has values in the place of variables that
    /// change, or something in the place of variables that no server knows.
    pub original: Option<Box<[u8]>>,
    /// Parameters, by the server's answer to the PREPARE.
    pub params: u16,
    /// Parameter types as the client sent them last: 2 bytes each, and a name behind each from clients with QUERY_ATTRIBUTES. Executions may omit them.
    pub types: Option<Rc<[u8]>>,
    /// What COM_STMT_SEND_LONG_DATA has brought for its next execution.
    pub long_data: LongData,
    /// The server's statement that serves this one alone, on the session's lease: its cursor or its long data are
    /// there, and an execution by another statement of the same meaning would end the one and take the other.
    pub own: Option<BackendStatement>,
    /// Its cursor is open.
    pub has_cursor: bool,
}

/// Values of parameters that come ahead of an execution, in any number of packets.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum LongData {
    /// None came.
    #[default]
    None,
    /// The client's packets, to be sent in front of the execution.
    Kept(Vec<u8>),
    /// They are at the server.
    Sent,
    /// They were refused, which the client is told when it executes the statement, until it resets it.
    Refused(ServerError, Box<str>),
}

impl ClientStatement {
    /// A statement that was just prepared.
    pub fn new(prepared: Rc<Prepared>, params: u16) -> Self {
        Self {
            prepared,
            original: None,
            params,
            types: None,
            long_data: LongData::None,
            own: None,
            has_cursor: false,
        }
    }

    /// What it takes of its session's share, bytes.
    pub fn bytes(&self) -> usize {
        let original = self.original.as_ref().map_or(0, |text| text.len());
        STATEMENT_BYTES + self.prepared.text().len() + original + 2 * usize::from(self.params)
    }

    /// Bytes kept of its long data.
    pub fn long_data_bytes(&self) -> usize {
        if let LongData::Kept(packets) = &self.long_data { packets.len() } else { 0 }
    }
}

/// The statements that exist on one backend connection.
#[derive(Debug, Default)]
pub struct BackendStatements {
    /// Least recently used first.
    entries: Vec<BackendStatement>,
}

/// One server-side statement.
#[derive(Debug)]
pub struct BackendStatement {
    prepared: u64,
    /// The server's id.
    pub id: u32,
    /// The types that this server-side statement has seen last.
    pub types: Option<Rc<[u8]>>,
}

impl BackendStatements {
    /// The statement, now the most recently used one.
    pub fn touch(&mut self, prepared: &Prepared) -> Option<&mut BackendStatement> {
        let at = self.entries.iter().rposition(|entry| entry.prepared == prepared.id)?;
        if at + 1 != self.entries.len() {
            let entry = self.entries.remove(at);
            self.entries.push(entry);
        }
        self.entries.last_mut()
    }

    /// Whether it is there.
    pub fn contains(&self, prepared: &Prepared) -> bool {
        self.entries.iter().any(|entry| entry.prepared == prepared.id)
    }

    /// Takes a statement out: it belongs to one session's statement from now on.
    pub fn take(&mut self, prepared: &Prepared) -> Option<BackendStatement> {
        let at = self.entries.iter().position(|entry| entry.prepared == prepared.id)?;
        Some(self.entries.remove(at))
    }

    /// Puts a statement back for everybody. Returns the server's id of it if it has to be closed: another one of the
    /// same meaning has come meanwhile.
    pub fn give_back(&mut self, statement: BackendStatement) -> Option<u32> {
        if self.entries.iter().any(|entry| entry.prepared == statement.prepared) {
            return Some(statement.id);
        }
        self.entries.push(statement);
        None
    }

    /// An execution has failed: the server may not have taken the types that came with it.
    pub fn forget_types(&mut self, prepared: &Prepared) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.prepared == prepared.id) {
            entry.types = None;
        }
    }

    /// Takes in a statement that the server has just prepared. Returns the server's ids of statements that
    /// have to be closed: an older one of the same meaning, and the least recently used beyond `limit`.
    pub fn insert(&mut self, prepared: &Prepared, id: u32, limit: usize) -> Vec<u32> {
        let mut closed = Vec::new();
        if let Some(at) = self.entries.iter().position(|entry| entry.prepared == prepared.id) {
            closed.push(self.entries.remove(at).id);
        }
        while self.entries.len() >= limit.max(1) {
            closed.push(self.entries.remove(0).id);
        }
        self.entries.push(BackendStatement { prepared: prepared.id, id, types: None });
        closed
    }

    /// Gives them all up. Returns the server's ids, which have to be closed.
    pub fn give_up(&mut self) -> Vec<u32> {
        self.entries.drain(..).map(|entry| entry.id).collect()
    }

    /// The server has dropped them all (COM_RESET_CONNECTION, COM_CHANGE_USER).
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
