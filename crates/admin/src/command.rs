//! Understands what can be typed: Weir's own commands, and SQL for SQLite.

mod dialect;
mod fixed;
#[cfg(test)]
mod guide;
mod set;
mod show;
mod words;

use weir_store::Module;
use weir_topology::Endpoint;

pub(crate) use self::fixed::{Checksum, Fixed, Proxy};
pub(crate) use self::set::{Assignment, Scope};
pub(crate) use self::show::{Filter, Show, Variables};
pub(crate) use self::words::VARIABLE;
use crate::error::SqlError;
use crate::tokens::{Cursor, Kind, Token, tokens};
use weir_config::nearest;

/// A statement, understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// LOAD, SAVE, PROXYSQL, CHECKSUM: a fixed sequence of words.
    Fixed(Fixed),
    /// LOAD MYSQL USER name TO RUNTIME: of the users this one alone.
    LoadUser(String),
    Show(Show),
    /// SET, one or several.
    Set(Vec<Assignment>),
    Use(String),
    /// KILL [CONNECTION | QUERY]
    Kill {
        thread_id: u64,
        query_only: bool,
    },
    /// TRUNCATE [TABLE]
    Truncate {
        schema: Option<String>,
        table: String,
    },
    /// SAVE CONFIG TO FILE, SELECT CONFIG INTO OUTFILE
    SaveConfig(String),
    /// BEGIN, COMMIT and the like: each statement takes effect at once.
    Transaction {
        is_rollback: bool,
    },
    /// WEIR ...
    Weir(Weir),
    /// Anything that SQLite is to run.
    Sql(Sql),
    /// Nothing but comments.
    Nothing,
}

/// A command that Weir has and ProxySQL has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Weir {
    Switchover { hostgroup: u32, to: Option<Endpoint>, force: bool, dry_run: bool },
    Drain(Endpoint),
    Undrain { server: Endpoint, force: bool },
}

/// A statement for SQLite.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sql {
    /// In SQLite's dialect.
    pub text: String,
    /// Names of variables that are compared with `variable_name` in it.
    pub variables: Vec<String>,
    /// The `@@variables` in it.
    pub system: Vec<String>,
}

/// A place where rows can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Memory,
    Runtime,
    Disk,
    /// The configuration file.
    File,
}

impl Place {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Memory => "MEMORY",
            Place::Runtime => "RUNTIME",
            Place::Disk => "DISK",
            Place::File => "CONFIG",
        }
    }
}

/// Rows of a module go from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Move {
    pub module: Module,
    pub from: Place,
    pub to: Place,
}

/// Reads a statement.
///
/// # Errors
/// A syntax error, which names the nearest known command.
pub(crate) fn parse(text: &str) -> Result<Command, SqlError> {
    let tokens = tokens(text).map_err(|error| SqlError::syntax(error.to_string()))?;
    let mut cursor = Cursor::new(&tokens);
    let Some(first) = cursor.next() else { return Ok(Command::Nothing) };
    if first.kind == Kind::Word
        && let Some(command) = own(first, cursor, &tokens)?
    {
        return Ok(command);
    }
    let is_sql = ["SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "WITH", "VALUES", "EXPLAIN", "PRAGMA"];
    if first.is_symbol('(') || is_sql.iter().any(|word| first.is(word)) {
        return Ok(Command::Sql(words::sql(&tokens)));
    }
    if ["ATTACH", "DETACH", "CREATE", "DROP", "ALTER", "VACUUM", "REINDEX", "ANALYZE"]
        .iter()
        .any(|w| first.is(w))
    {
        return Err(SqlError::denied(format!(
            "{} is not allowed at the admin port: its tables are fixed",
            first.source.to_ascii_uppercase()
        )));
    }
    Err(unknown(&tokens))
}

/// Weir's own commands. None: it is none of them.
fn own(
    first: &Token<'_>,
    mut cursor: Cursor<'_, '_>,
    tokens: &[Token<'_>],
) -> Result<Option<Command>, SqlError> {
    if let Some(fixed) = fixed::find(tokens) {
        return Ok(Some(Command::Fixed(fixed)));
    }
    let verb = first.source.to_ascii_uppercase();
    let command = match verb.as_str() {
        "LOAD" => load_user(&mut cursor),
        "SHOW" => show::show(&mut cursor).map(Command::Show),
        "DESC" | "DESCRIBE" => show::describe(&mut cursor).map(Command::Show),
        "EXPLAIN" if is_table_name(&cursor) => show::describe(&mut cursor).map(Command::Show),
        "SET" => return set::set(&mut cursor).map(|assignments| Some(Command::Set(assignments))),
        "USE" => cursor.name().map(|schema| Command::Use(schema.into_owned())),
        "KILL" => kill(&mut cursor),
        "TRUNCATE" => {
            cursor.takes("TABLE");
            cursor.table().map(|(schema, table)| Command::Truncate { schema, table })
        }
        "SAVE" | "SELECT" if cursor.peek().is_some_and(|token| token.is("CONFIG")) => {
            save_config(&mut cursor)
        }
        "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" => transaction(&verb, &mut cursor),
        "WEIR" => return weir(&mut cursor, tokens).map(|weir| Some(Command::Weir(weir))),
        _ => return Ok(None),
    };
    match command {
        Some(command) if cursor.is_empty() => Ok(Some(command)),
        _ if verb == "SELECT" => Ok(None),
        _ => Err(unknown(tokens)),
    }
}

fn is_table_name(cursor: &Cursor<'_, '_>) -> bool {
    let words = ["SELECT", "WITH", "QUERY", "INSERT", "UPDATE", "DELETE", "REPLACE", "VALUES"];
    cursor.peek().is_some_and(|token| !words.iter().any(|word| token.is(word)))
}

fn load_user(cursor: &mut Cursor<'_, '_>) -> Option<Command> {
    (cursor.takes("MYSQL") && cursor.takes("USER")).then_some(())?;
    let [name @ .., to, runtime] = cursor.rest() else { return None };
    (to.is("TO") && runtime.is("RUNTIME")).then_some(())?;
    // A name may be typed without quotes, also with a dash or a dot in it.
    let is_one_piece = name.windows(2).all(|pair| pair[0].span.end == pair[1].span.start);
    let name: String = name.iter().map(Token::value).collect();
    while cursor.next().is_some() {}
    (is_one_piece && !name.is_empty()).then_some(Command::LoadUser(name))
}

fn kill(cursor: &mut Cursor<'_, '_>) -> Option<Command> {
    let query_only = cursor.takes("QUERY");
    if !query_only {
        cursor.takes("CONNECTION");
    }
    let thread_id = cursor.next()?.source.parse().ok()?;
    Some(Command::Kill { thread_id, query_only })
}

fn save_config(cursor: &mut Cursor<'_, '_>) -> Option<Command> {
    cursor.takes("CONFIG");
    let is_outfile = cursor.takes("INTO") && cursor.takes("OUTFILE");
    let is_named = is_outfile || (cursor.takes("TO") && cursor.takes("FILE"));
    is_named.then_some(())?;
    // A path may be typed without quotes.
    let path: String = cursor.rest().iter().map(Token::value).collect();
    while cursor.next().is_some() {}
    (!path.is_empty()).then_some(Command::SaveConfig(path))
}

fn transaction(verb: &str, cursor: &mut Cursor<'_, '_>) -> Option<Command> {
    if verb == "START" && !cursor.takes("TRANSACTION") {
        return None;
    }
    while cursor.takes_any(&["WORK", "TRANSACTION", "READ", "ONLY", "WRITE", "AND", "NO", "CHAIN", "RELEASE"])
        || cursor.takes_any(&["WITH", "CONSISTENT", "SNAPSHOT", "IMMEDIATE", "DEFERRED", "EXCLUSIVE"])
        || cursor.takes_symbol(',')
    {}
    Some(Command::Transaction { is_rollback: verb == "ROLLBACK" })
}

fn weir(cursor: &mut Cursor<'_, '_>, tokens: &[Token<'_>]) -> Result<Weir, SqlError> {
    let endpoint = |cursor: &mut Cursor<'_, '_>| -> Result<Endpoint, SqlError> {
        let text = cursor.text().ok_or_else(|| SqlError::syntax("a server is named as 'host:port'"))?;
        text.parse().map_err(|error| SqlError::syntax(format!("{text}: {error}")))
    };
    let command = if cursor.takes("DRAIN") {
        Weir::Drain(endpoint(cursor)?)
    } else if cursor.takes("UNDRAIN") {
        let server = endpoint(cursor)?;
        Weir::Undrain { server, force: cursor.takes("FORCE") }
    } else if cursor.takes("SWITCHOVER") && cursor.takes("HOSTGROUP") {
        let hostgroup = cursor.next().and_then(|token| token.source.parse().ok());
        let hostgroup =
            hostgroup.ok_or_else(|| SqlError::syntax("HOSTGROUP takes the number of a writer hostgroup"))?;
        let to = if cursor.takes("TO") { Some(endpoint(cursor)?) } else { None };
        let (mut force, mut dry_run) = (false, false);
        loop {
            if cursor.takes("FORCE") {
                force = true;
            } else if cursor.takes("DRY") && cursor.takes("RUN") {
                dry_run = true;
            } else {
                break;
            }
        }
        Weir::Switchover { hostgroup, to, force, dry_run }
    } else {
        return Err(unknown(tokens));
    };
    if cursor.is_empty() { Ok(command) } else { Err(unknown(tokens)) }
}

/// What nobody knows, with what may have been meant.
fn unknown(tokens: &[Token<'_>]) -> SqlError {
    let typed: Vec<_> = tokens.iter().take(12).map(|token| token.source.to_ascii_uppercase()).collect();
    let typed = typed.join(" ");
    let known = fixed::spellings().chain(show::FORMS.iter().copied()).chain(FORMS.iter().copied());
    // What follows a command's words (a name, a pattern) would count as edits: the beginning is compared as well.
    let words = typed.split(' ').count();
    let candidates: Vec<&str> = known.collect();
    let found = nearest(&typed, candidates.iter().copied()).or_else(|| {
        (1..words).rev().find_map(|count| {
            let beginning: Vec<_> = typed.split(' ').take(count).collect();
            nearest(&beginning.join(" "), candidates.iter().copied())
        })
    });
    let near: String = tokens.first().map_or("", |token| token.source).chars().take(40).collect();
    SqlError::syntax(match found {
        Some(found) if found == typed => format!("syntax error behind \"{found}\""),
        Some(found) => format!("unknown command near \"{near}\", did you mean \"{found}\"?"),
        None => format!("unknown command near \"{near}\": no admin command starts with this"),
    })
}

/// Commands with something behind them, for suggestions.
const FORMS: &[&str] = &[
    "LOAD MYSQL USER",
    "KILL CONNECTION",
    "KILL QUERY",
    "SAVE CONFIG TO FILE",
    "SELECT CONFIG INTO OUTFILE",
    "SELECT",
    "INSERT INTO",
    "REPLACE INTO",
    "UPDATE",
    "DELETE FROM",
    "SET",
    "USE",
    "TRUNCATE TABLE",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "DESCRIBE",
    "WEIR SWITCHOVER HOSTGROUP",
    "WEIR DRAIN",
    "WEIR UNDRAIN",
];

#[cfg(test)]
mod tests;
