//! Reads `SHOW` and `DESCRIBE`.

use super::words::text_of;
use crate::tokens::{Cursor, Kind};

/// The subject of a SHOW.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Databases(Filter),
    Tables {
        schema: Option<String>,
        is_full: bool,
        filter: Filter,
    },
    CreateTable {
        schema: Option<String>,
        table: String,
    },
    Columns {
        schema: Option<String>,
        table: String,
        is_full: bool,
        filter: Filter,
    },
    Index {
        schema: Option<String>,
        table: String,
    },
    TableStatus {
        schema: Option<String>,
        filter: Filter,
    },
    Variables(Variables, Filter),
    /// SHOW [GLOBAL | SESSION | MYSQL] STATUS
    Status(Filter),
    Users,
    Servers,
    ProcessList {
        is_full: bool,
    },
    Metrics,
    Warnings,
    /// SHOW COUNT(*) WARNINGS
    CountWarnings,
    Engines,
    CharacterSets(Filter),
    Collations(Filter),
    Grants,
    /// SHOW ERRORS, PLUGINS, TRIGGERS ...: there are none.
    Nothing,
}

/// The module whose variables are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variables {
    /// `mysql-` and `admin-`; with a filter also those that a driver asks a server for.
    All,
    Mysql,
    Admin,
}

/// LIKE or WHERE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    None,
    Like(String),
    /// `WHERE column = 'a'`, `column IN ('a', 'b')`, `column LIKE 'a'`, joined by OR: any of these names or patterns.
    Any(Vec<String>),
    /// `WHERE` and any condition, in SQLite's dialect.
    Sql(String),
}

/// For suggestions.
pub(super) const FORMS: &[&str] = &[
    "SHOW TABLES",
    "SHOW TABLES FROM",
    "SHOW DATABASES",
    "SHOW SCHEMAS",
    "SHOW CREATE TABLE",
    "SHOW COLUMNS FROM",
    "SHOW INDEX FROM",
    "SHOW TABLE STATUS",
    "SHOW VARIABLES",
    "SHOW ALL VARIABLES",
    "SHOW ADMIN VARIABLES",
    "SHOW MYSQL VARIABLES",
    "SHOW GLOBAL VARIABLES",
    "SHOW SESSION VARIABLES",
    "SHOW VARIABLES LIKE",
    "SHOW STATUS",
    "SHOW GLOBAL STATUS",
    "SHOW MYSQL STATUS",
    "SHOW MYSQL USERS",
    "SHOW MYSQL SERVERS",
    "SHOW PROCESSLIST",
    "SHOW FULL PROCESSLIST",
    "SHOW PROMETHEUS METRICS",
    "SHOW WARNINGS",
    "SHOW ERRORS",
    "SHOW ENGINES",
    "SHOW COLLATION",
    "SHOW CHARACTER SET",
];

/// What follows SHOW. The caller looks whether anything is left.
pub(super) fn show(cursor: &mut Cursor<'_, '_>) -> Option<Show> {
    let is_full = cursor.takes("FULL");
    if cursor.takes_any(&["TABLES"]) {
        let schema = from(cursor)?;
        return Some(Show::Tables { schema, is_full, filter: condition(cursor)? });
    }
    if cursor.takes_any(&["COLUMNS", "FIELDS"]) {
        let (schema, table) = of_table(cursor)?;
        return Some(Show::Columns { schema, table, is_full, filter: filter(cursor)? });
    }
    if cursor.takes("PROCESSLIST") {
        return Some(Show::ProcessList { is_full });
    }
    if is_full {
        return None;
    }
    if let Some(variables) = variables(cursor) {
        return Some(Show::Variables(variables, filter(cursor)?));
    }
    scoped(cursor).or_else(|| rare(cursor))
}

/// `DESC t`, `DESCRIBE schema.t`, with or without a column.
pub(super) fn describe(cursor: &mut Cursor<'_, '_>) -> Option<Show> {
    let (schema, table) = cursor.table()?;
    let filter = cursor.name().map_or(Filter::None, |column| Filter::Like(column.into_owned()));
    Some(Show::Columns { schema, table, is_full: false, filter })
}

fn variables(cursor: &mut Cursor<'_, '_>) -> Option<Variables> {
    let mut ahead = cursor.clone();
    let variables = match () {
        () if ahead.takes("MYSQL") => Variables::Mysql,
        () if ahead.takes("ADMIN") => Variables::Admin,
        () => {
            ahead.takes_any(&["ALL", "GLOBAL", "SESSION", "LOCAL"]);
            Variables::All
        }
    };
    ahead.takes("VARIABLES").then_some(())?;
    *cursor = ahead;
    Some(variables)
}

/// What comes with a word in front that says whose it is.
fn scoped(cursor: &mut Cursor<'_, '_>) -> Option<Show> {
    let mut ahead = cursor.clone();
    let show = if ahead.takes("MYSQL") {
        match () {
            () if ahead.takes("USERS") => Show::Users,
            () if ahead.takes("SERVERS") => Show::Servers,
            () => {
                ahead.takes("STATUS").then_some(())?;
                Show::Status(filter(&mut ahead)?)
            }
        }
    } else {
        ahead.takes_any(&["GLOBAL", "SESSION", "LOCAL"]);
        ahead.takes("STATUS").then_some(())?;
        Show::Status(filter(&mut ahead)?)
    };
    *cursor = ahead;
    Some(show)
}

/// SHOW statements that clients rarely send.
fn rare(cursor: &mut Cursor<'_, '_>) -> Option<Show> {
    let word = cursor.next().filter(|token| token.kind == Kind::Word)?.source.to_ascii_uppercase();
    Some(match word.as_str() {
        "DATABASES" | "SCHEMAS" => Show::Databases(filter(cursor)?),
        "CREATE" if cursor.takes("TABLE") => {
            let (schema, table) = cursor.table()?;
            Show::CreateTable { schema, table }
        }
        "INDEX" | "INDEXES" | "KEYS" => {
            let (schema, table) = of_table(cursor)?;
            Show::Index { schema, table }
        }
        "TABLE" if cursor.takes("STATUS") => {
            let schema = from(cursor)?;
            Show::TableStatus { schema, filter: filter(cursor)? }
        }
        "PROMETHEUS" if cursor.takes("METRICS") => Show::Metrics,
        "WARNINGS" => {
            limit(cursor)?;
            Show::Warnings
        }
        "COUNT" => {
            let is_all = cursor.takes_symbol('(') && cursor.takes_symbol('*') && cursor.takes_symbol(')');
            is_all.then_some(())?;
            if cursor.takes("WARNINGS") { Show::CountWarnings } else { return None }
        }
        "ENGINES" => Show::Engines,
        "STORAGE" if cursor.takes("ENGINES") => Show::Engines,
        "COLLATION" => Show::Collations(filter(cursor)?),
        "CHARSET" => Show::CharacterSets(filter(cursor)?),
        "CHARACTER" if cursor.takes("SET") => Show::CharacterSets(filter(cursor)?),
        "GRANTS" => {
            while cursor.next().is_some() {}
            Show::Grants
        }
        "ERRORS" | "PLUGINS" | "SLAVE" | "REPLICA" | "TRIGGERS" | "EVENTS" | "PROCEDURE" | "FUNCTION" => {
            while cursor.next().is_some() {}
            Show::Nothing
        }
        _ => return None,
    })
}

/// `[FROM | IN schema]`; outer None: a name is missing.
#[allow(clippy::option_option)]
fn from(cursor: &mut Cursor<'_, '_>) -> Option<Option<String>> {
    if !cursor.takes_any(&["FROM", "IN"]) {
        return Some(None);
    }
    Some(Some(cursor.name()?.into_owned()))
}

/// `FROM [schema.]table [FROM schema]`
fn of_table(cursor: &mut Cursor<'_, '_>) -> Option<(Option<String>, String)> {
    cursor.takes_any(&["FROM", "IN"]).then_some(())?;
    let (schema, table) = cursor.table()?;
    Some((from(cursor)?.or(schema), table))
}

fn limit(cursor: &mut Cursor<'_, '_>) -> Option<()> {
    if cursor.takes("LIMIT") {
        cursor.next()?.source.parse::<u64>().ok()?;
        if cursor.takes_symbol(',') {
            cursor.next()?.source.parse::<u64>().ok()?;
        }
    }
    Some(())
}

/// A filter of tables, which may be about any of the columns shown.
fn condition(cursor: &mut Cursor<'_, '_>) -> Option<Filter> {
    if !cursor.takes("WHERE") {
        return filter(cursor);
    }
    let text = text_of(cursor.rest(), &mut Vec::new());
    while cursor.next().is_some() {}
    (!text.is_empty()).then_some(Filter::Sql(text))
}

fn filter(cursor: &mut Cursor<'_, '_>) -> Option<Filter> {
    if cursor.takes("LIKE") {
        return Some(Filter::Like(cursor.text()?.into_owned()));
    }
    if !cursor.takes("WHERE") {
        return Some(Filter::None);
    }
    let mut names = Vec::new();
    loop {
        cursor.name()?;
        if cursor.takes_symbol('=') || cursor.takes("LIKE") {
            names.push(cursor.text()?.into_owned());
        } else if cursor.takes("IN") && cursor.takes_symbol('(') {
            loop {
                names.push(cursor.text()?.into_owned());
                if !cursor.takes_symbol(',') {
                    break;
                }
            }
            cursor.takes_symbol(')').then_some(())?;
        } else {
            return None;
        }
        if !cursor.takes("OR") {
            return Some(Filter::Any(names));
        }
    }
}
