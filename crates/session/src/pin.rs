//! Tracks pins: the reasons why a session must keep the very backend connection that it has.
//!
//! Servers report most of a session's state (see [`crate::state`]); what they do not report with values can't be
//! carried to another connection, so the session stays where it is until the reason ends.

use bitflags::bitflags;
use weir_sql::{Effects, NamedEffect, TableName};

bitflags! {
    /// The reasons that hold at a time. Each has a name for logs, metrics and the admin interface.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Pins: u32 {
        /// A transaction is open (the server's own status flag).
        const TRANSACTION = 1 << 0;
        /// User variables were set.
        const USER_VARIABLE = 1 << 1;
        /// Temporary tables exist.
        const TEMPORARY_TABLE = 1 << 2;
        /// GET_LOCK locks may be held.
        const USER_LOCK = 1 << 3;
        /// LOCK TABLES or FLUSH TABLES WITH READ LOCK.
        const TABLE_LOCK = 1 << 4;
        /// PREPARE ... FROM handles exist.
        const TEXT_PREPARE = 1 << 5;
        /// HANDLER ... OPEN.
        const HANDLER = 1 << 6;
        /// BACKUP STAGE or BACKUP LOCK.
        const BACKUP = 1 << 7;
        /// SET ROLE.
        const ROLE = 1 << 8;
        /// SET TRANSACTION for the next transaction only.
        const NEXT_TRANSACTION = 1 << 9;
        /// A routine ran, which may have done any of the above unseen.
        const ROUTINE = 1 << 10;
        /// A sequence was used: LASTVAL() depends on it.
        const SEQUENCE = 1 << 11;
        /// A variable was set whose value can't be read back or written back.
        const UNREADABLE_VARIABLE = 1 << 12;
        /// A variable that some later statement uses up was set (insert_id).
        const NEXT_STATEMENT = 1 << 13;
        /// An XA transaction is open.
        const XA = 1 << 14;
        /// Profiles or optimizer traces of the session's statements, with their texts, are on this connection.
        const PROFILING = 1 << 15;
        /// The server says that state has changed and nobody knows which.
        const STATE_CHANGE = 1 << 16;
        /// A statement that may change state failed: the state is what the connection has.
        const UNKNOWN_AFTER_ERROR = 1 << 17;
        /// A statement too long to be looked at whole.
        const UNSCANNED_STATEMENT = 1 << 18;
        /// A statement that reads ROW_COUNT() or FOUND_ROWS() was prepared.
        const PREPARED_DIAGNOSTICS = 1 << 19;
        /// A cursor is open: COM_STMT_FETCH goes where it is.
        const CURSOR = 1 << 20;
        /// More of COM_STMT_SEND_LONG_DATA than Weir keeps is at a server, for an execution there.
        const LONG_DATA = 1 << 21;
        /// A query rule with `multiplex = 0` has matched.
        const QUERY_RULE = 1 << 22;
        /// Without autocommit, a SAVEPOINT before the first use of a table: the server's status shows no transaction.
        const SAVEPOINT = 1 << 23;
        /// `sql_auto_is_null` is on: `IS NULL` means LAST_INSERT_ID().
        const AUTO_IS_NULL = 1 << 24;
    }
}

impl Pins {
    /// What COM_RESET_CONNECTION does not end. A role even outlives COM_CHANGE_USER to a user who does not have
    /// it (seen on MariaDB 10.11), and profiles (MariaDB) or traces (MySQL 9.7) a reset, so that such a connection is
    /// closed in the end, never handed on.
    pub const OUTLIVE_RESET: Pins = Pins::ROLE.union(Pins::PROFILING);

    /// What stands for changes that nobody can name: a connection that a session with one of these leaves behind is
    /// proven clean before anybody else gets it.
    pub const OPAQUE: Pins = Pins::ROUTINE
        .union(Pins::STATE_CHANGE)
        .union(Pins::UNKNOWN_AFTER_ERROR)
        .union(Pins::UNSCANNED_STATEMENT);

    /// What can be taken along when a session's server is to be left: see [`crate::user_variables`]; after a routine if
    /// [`crate::remains`] shows nothing else.
    pub const MOVABLE: Pins = Pins::USER_VARIABLE.union(Pins::ROUTINE);

    /// The names of the reasons, in lower case, for people.
    pub fn words(self) -> String {
        let names: Vec<String> = self.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.join(", ")
    }
}

/// The pins of one session, with the names of what still exists.
#[derive(Debug, Default)]
pub struct PinBoard {
    pins: Pins,
    named: Option<Box<Named>>,
}

/// Things with names: a pin ends when the last one of its kind is gone.
#[derive(Debug, Default)]
struct Named {
    temporary_tables: Vec<(Vec<u8>, Vec<u8>)>,
    prepared: Vec<Vec<u8>>,
    handlers: Vec<Vec<u8>>,
    locks: Vec<Vec<u8>>,
    /// User variables that may have been set, where only the texts tell them.
    variables: Vec<Vec<u8>>,
    /// Some thing of the kind exists whose name is not known: the pin can't end by names.
    nameless: Pins,
}

/// More named things than this in a session are not counted one by one any more.
const NAMED_MAX: usize = 256;

impl PinBoard {
    /// The reasons that hold now.
    pub fn pins(&self) -> Pins {
        self.pins
    }

    /// Whether the session may leave its connection.
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    /// Adds reasons.
    pub fn insert(&mut self, pins: Pins) {
        self.pins |= pins;
    }

    /// Ends reasons.
    pub fn remove(&mut self, pins: Pins) {
        self.pins -= pins;
    }

    /// Sets or ends a reason.
    pub fn set(&mut self, pins: Pins, on: bool) {
        self.pins.set(pins, on);
    }

    /// Takes in the names of user variables that a statement may have set; none if they can't be told.
    pub fn note_variables(&mut self, names: Option<Vec<Vec<u8>>>) {
        let named = self.named.get_or_insert_with(Box::default);
        for name in names.iter().flatten() {
            if named.variables.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                continue;
            }
            add(&mut named.variables, name.clone(), Pins::USER_VARIABLE, &mut named.nameless);
        }
        if names.is_none() {
            named.nameless |= Pins::USER_VARIABLE;
        }
    }

    /// The names of all user variables that the texts of statements may have set, if they are known.
    pub fn variables(&self) -> Option<&[Vec<u8>]> {
        let named = self.named.as_ref()?;
        (!named.nameless.contains(Pins::USER_VARIABLE)).then_some(named.variables.as_slice())
    }

    /// Forgets everything: COM_RESET_CONNECTION, COM_CHANGE_USER, a new connection.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes in what a statement that succeeded has done, by its text.
    ///
    /// `schema` is the session's default schema: names without one mean it.
    pub fn apply(&mut self, effects: Effects, schema: &[u8], names: impl FnOnce() -> Vec<NamedEffect>) {
        if effects.is_empty() {
            return;
        }
        self.pins |= lasting_pins(effects);
        if effects.intersects(named_effects()) {
            let names = names();
            self.apply_names(effects, schema, names);
        }
        if effects.contains(Effects::TABLES_UNLOCKED) {
            self.remove(Pins::TABLE_LOCK);
        }
        if effects.intersects(Effects::BACKUP_ENDED | Effects::BACKUP_UNLOCKED) {
            self.remove(Pins::BACKUP);
        }
    }

    fn apply_names(&mut self, effects: Effects, default: &[u8], names: Vec<NamedEffect>) {
        let named = self.named.get_or_insert_with(Box::default);
        let mut seen = Pins::empty();
        for name in names {
            match name {
                NamedEffect::TemporaryTableCreated(TableName { schema, name }) => {
                    seen |= Pins::TEMPORARY_TABLE;
                    let table = (schema.unwrap_or_else(|| default.to_vec()), name);
                    // IF NOT EXISTS may name the same table again.
                    named.temporary_tables.retain(|known| *known != table);
                    add(&mut named.temporary_tables, table, Pins::TEMPORARY_TABLE, &mut named.nameless);
                }
                NamedEffect::TableDropped(TableName { schema, name }) => {
                    let gone = (schema.unwrap_or_else(|| default.to_vec()), name);
                    named.temporary_tables.retain(|table| *table != gone);
                }
                // A temporary table may have another name now.
                NamedEffect::TablesRenamed if !named.temporary_tables.is_empty() => {
                    named.nameless |= Pins::TEMPORARY_TABLE;
                }
                NamedEffect::TablesRenamed => {}
                NamedEffect::Prepared(name) => {
                    seen |= Pins::TEXT_PREPARE;
                    named.prepared.retain(|old| *old != name);
                    add(&mut named.prepared, name, Pins::TEXT_PREPARE, &mut named.nameless);
                }
                NamedEffect::Deallocated(name) => named.prepared.retain(|old| *old != name),
                NamedEffect::HandlerOpened(name) => {
                    seen |= Pins::HANDLER;
                    add(&mut named.handlers, name, Pins::HANDLER, &mut named.nameless);
                }
                NamedEffect::HandlerClosed(name) => named.handlers.retain(|old| *old != name),
                NamedEffect::LockAcquired(name) => {
                    seen |= Pins::USER_LOCK;
                    match name {
                        Some(name) => add(&mut named.locks, name, Pins::USER_LOCK, &mut named.nameless),
                        None => named.nameless |= Pins::USER_LOCK,
                    }
                }
                NamedEffect::LockReleased(name) => {
                    if let Some(at) = named.locks.iter().position(|held| *held == name) {
                        named.locks.swap_remove(at);
                    }
                }
                NamedEffect::AllLocksReleased => {
                    named.locks.clear();
                    named.nameless -= Pins::USER_LOCK;
                }
            }
        }
        for (effect, pin) in NAMED {
            if effects.contains(effect) && !seen.contains(pin) {
                named.nameless |= pin;
            }
        }
        let named = &*named;
        let alive = [
            (Pins::TEMPORARY_TABLE, !named.temporary_tables.is_empty()),
            (Pins::TEXT_PREPARE, !named.prepared.is_empty()),
            (Pins::HANDLER, !named.handlers.is_empty()),
            (Pins::USER_LOCK, !named.locks.is_empty()),
        ];
        let nameless = named.nameless;
        for (pin, any) in alive {
            self.pins.set(pin, any || nameless.contains(pin));
        }
    }
}

/// Effects that create a thing with a name, and the pin that lives as long as one of them.
const NAMED: [(Effects, Pins); 4] = [
    (Effects::TEMPORARY_TABLE_CREATED, Pins::TEMPORARY_TABLE),
    (Effects::TEXT_PREPARE, Pins::TEXT_PREPARE),
    (Effects::HANDLER_OPENED, Pins::HANDLER),
    (Effects::LOCK_ACQUIRED, Pins::USER_LOCK),
];

fn named_effects() -> Effects {
    Effects::TEMPORARY_TABLE_CREATED
        | Effects::TABLE_DROPPED
        | Effects::TABLE_RENAMED
        | Effects::TEXT_PREPARE
        | Effects::TEXT_DEALLOCATE
        | Effects::HANDLER_OPENED
        | Effects::HANDLER_CLOSED
        | Effects::LOCK_ACQUIRED
        | Effects::LOCK_RELEASED
}

/// Pins that a statement's text calls for and that last.
fn lasting_pins(effects: Effects) -> Pins {
    const MAP: [(Effects, Pins); 13] = [
        (Effects::USER_VARIABLE, Pins::USER_VARIABLE),
        (Effects::TABLES_LOCKED, Pins::TABLE_LOCK),
        (Effects::BACKUP_STAGE.union(Effects::BACKUP_LOCKED), Pins::BACKUP),
        (Effects::ROLE_CHANGED, Pins::ROLE),
        (Effects::NEXT_TRANSACTION, Pins::NEXT_TRANSACTION),
        (Effects::ROUTINE, Pins::ROUTINE),
        (Effects::SEQUENCE, Pins::SEQUENCE),
        (Effects::UNREADABLE_VARIABLE, Pins::UNREADABLE_VARIABLE),
        (Effects::UNTRACKED, Pins::UNREADABLE_VARIABLE),
        (Effects::ONE_SHOT, Pins::NEXT_STATEMENT),
        (Effects::XA, Pins::XA),
        (Effects::PROFILING, Pins::PROFILING),
        (Effects::UNKNOWN, Pins::STATE_CHANGE),
    ];
    MAP.iter()
        .filter(|(effect, _)| effects.intersects(*effect))
        .fold(Pins::empty(), |pins, (_, pin)| pins | *pin)
}

fn add<T>(list: &mut Vec<T>, item: T, pin: Pins, nameless: &mut Pins) {
    if list.len() < NAMED_MAX {
        list.push(item);
    } else {
        *nameless |= pin;
    }
}
