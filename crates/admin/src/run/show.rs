//! Answers SHOW and DESCRIBE, as queries where there is a table for it.

use weir_protocol::error;
use weir_sql::literal::sqlite_text;
use weir_store::{MAIN, STATS, TableDef, tables};

use crate::command::{Filter, Show, Variables};
use crate::error::SqlError;
use crate::login::Rights;
use crate::reply::{Reply, RowFormat, Rows};
use crate::session::Session;
use crate::variables::all;

/// Characters of a statement that SHOW PROCESSLIST shows without FULL.
const INFO_CHARS: usize = 100;
/// In place of a secret.
const HIDDEN: &str = "********";

impl Session {
    /// Shows something.
    pub(super) fn show(&mut self, show: &Show, format: RowFormat) -> Result<Reply, SqlError> {
        if let Some(query) = self.show_sql(show)? {
            return self.query(&query, &[], format);
        }
        match show {
            Show::Databases(filter) => {
                let schemas = weir_store::SCHEMAS.iter().enumerate();
                let files = ["", "weir.db", "", "", "weir_stats.db"];
                let rows = schemas.filter(|(_, name)| matches(filter, name)).map(|(at, name)| {
                    vec![at.to_string(), (*name).to_owned(), files.get(at).copied().unwrap_or("").to_owned()]
                });
                self.rows(&["seq", "name", "file"], rows, format)
            }
            Show::CreateTable { schema, table } => {
                let found = self.table_or_refuse(schema.as_deref(), table)?;
                let row = vec![found.name.clone(), found.ddl.clone()];
                self.rows(&["table", "Create Table"], [row], format)
            }
            Show::Variables(whose, filter) => self.variables(*whose, filter, format),
            Show::Metrics => {
                let text = self.shared.engine.metrics_text().map_err(SqlError::other)?;
                self.rows(&["Data"], [vec![text]], format)
            }
            Show::Warnings => {
                let warnings = self.warnings.clone().into_iter();
                let rows = warnings.map(|w| vec![w.level.to_owned(), w.code.to_string(), w.message]);
                self.rows(&["Level", "Code", "Message"], rows, format)
            }
            Show::CountWarnings => {
                let count = self.warnings.len().to_string();
                self.rows(&["@@session.warning_count"], [vec![count]], format)
            }
            Show::Grants => {
                let rights = match self.rights {
                    Rights::Admin => "GRANT ALL PRIVILEGES ON *.*",
                    Rights::Stats => "GRANT SELECT ON stats.*",
                };
                self.rows(&["Grants"], [vec![format!("{rights} TO `{}`@`%`", self.user)]], format)
            }
            _ => self.rows(&["Name"], [], format),
        }
    }

    /// The query that shows it. None: it is not in tables.
    pub(super) fn show_sql(&self, show: &Show) -> Result<Option<String>, SqlError> {
        Ok(Some(match show {
            Show::Tables { schema, is_full, filter } => {
                self.tables_sql(schema.as_deref(), *is_full, filter)?
            }
            Show::Columns { schema, table, is_full, filter } => {
                let found = self.table_or_refuse(schema.as_deref(), table)?;
                columns_sql(found, *is_full, filter)
            }
            Show::Status(filter) => format!(
                "SELECT Variable_Name AS Variable_name, Variable_Value AS Value FROM stats.stats_mysql_global \
                 WHERE {} ORDER BY Variable_Name",
                condition("Variable_Name", filter)
            ),
            Show::Users => {
                let columns = main_columns("mysql_users");
                let shown =
                    columns.replace(", password,", &format!(", {} AS password,", sqlite_text(HIDDEN)));
                format!("SELECT {shown} FROM main.mysql_users")
            }
            Show::Servers => "SELECT * FROM main.mysql_servers".to_owned(),
            Show::ProcessList { is_full: true } => "SELECT * FROM stats.stats_mysql_processlist".to_owned(),
            Show::ProcessList { is_full: false } => format!(
                "SELECT SessionID, user, db, hostgroup, command, time_ms, SUBSTR(info, 1, {INFO_CHARS}) AS info \
                 FROM stats.stats_mysql_processlist"
            ),
            Show::Engines => {
                "SELECT ENGINE AS Engine, SUPPORT AS Support, COMMENT AS Comment, TRANSACTIONS AS \
                              Transactions, XA, SAVEPOINTS AS Savepoints FROM information_schema.ENGINES"
                    .to_owned()
            }
            Show::CharacterSets(filter) => format!(
                "SELECT CHARACTER_SET_NAME AS Charset, DESCRIPTION AS Description, DEFAULT_COLLATE_NAME AS \
                 \"Default collation\", MAXLEN AS Maxlen FROM information_schema.CHARACTER_SETS WHERE {}",
                condition("CHARACTER_SET_NAME", filter)
            ),
            Show::Collations(filter) => format!(
                "SELECT COLLATION_NAME AS Collation, CHARACTER_SET_NAME AS Charset, ID AS Id, IS_DEFAULT AS \
                 \"Default\", IS_COMPILED AS Compiled, SORTLEN AS Sortlen FROM information_schema.COLLATIONS WHERE {}",
                condition("COLLATION_NAME", filter)
            ),
            Show::TableStatus { schema, filter } => format!(
                "SELECT TABLE_NAME AS Name, ENGINE AS Engine, VERSION AS Version, TABLE_COLLATION AS Collation, \
                 TABLE_COMMENT AS Comment FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND {}",
                sqlite_text(self.known_schema(schema.as_deref())?),
                condition("TABLE_NAME", filter)
            ),
            Show::Index { schema, table } => {
                let found = self.table_or_refuse(schema.as_deref(), table)?;
                format!(
                    "SELECT TABLE_NAME AS \"Table\", NON_UNIQUE AS Non_unique, INDEX_NAME AS Key_name, SEQ_IN_INDEX AS \
                     Seq_in_index, COLUMN_NAME AS Column_name, COLLATION AS Collation, CARDINALITY AS Cardinality, \
                     SUB_PART AS Sub_part, PACKED AS Packed, NULLABLE AS \"Null\", INDEX_TYPE AS Index_type, COMMENT AS \
                     Comment, INDEX_COMMENT AS Index_comment FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = \
                     {} AND TABLE_NAME = {} ORDER BY SEQ_IN_INDEX",
                    sqlite_text(found.schema),
                    sqlite_text(&found.name)
                )
            }
            _ => return Ok(None),
        }))
    }

    /// The schema that is meant.
    fn known_schema(&self, schema: Option<&str>) -> Result<&'static str, SqlError> {
        let wanted = match (schema, self.rights) {
            (Some(schema), _) => schema,
            // What they can read is there.
            (None, Rights::Stats) if self.schema == MAIN => STATS,
            (None, _) => self.schema.as_str(),
        };
        let mut known = weir_store::SCHEMAS.into_iter().chain(["information_schema"]);
        let unknown = || SqlError::new(error::BAD_DB, format!("Unknown database '{wanted}'"));
        known.find(|known| known.eq_ignore_ascii_case(wanted)).ok_or_else(unknown)
    }

    fn tables_sql(&self, schema: Option<&str>, is_full: bool, filter: &Filter) -> Result<String, SqlError> {
        let schema = self.known_schema(schema)?;
        if let Filter::Sql(wanted) = filter {
            // MySQL's name of the column, beside ProxySQL's.
            return Ok(format!(
                "SELECT tables{} FROM (SELECT name AS tables, name AS Tables_in_{schema}, 'BASE TABLE' AS Table_type FROM \
                 {schema}.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%') WHERE {wanted} ORDER BY tables",
                if is_full { ", Table_type" } else { "" }
            ));
        }
        let kind = if is_full { ", 'BASE TABLE' AS Table_type" } else { "" };
        Ok(format!(
            "SELECT name AS tables{kind} FROM {schema}.sqlite_master WHERE type = 'table' AND name NOT LIKE \
             'sqlite_%' AND {} ORDER BY name",
            condition("name", filter)
        ))
    }

    fn variables(&mut self, whose: Variables, filter: &Filter, format: RowFormat) -> Result<Reply, SqlError> {
        let prefix = match whose {
            Variables::All => "",
            Variables::Mysql => "mysql-",
            Variables::Admin => "admin-",
        };
        let mut rows: Vec<(String, String)> = {
            let store = self.shared.store();
            let failed = |error: rusqlite::Error| SqlError::other(error.to_string());
            let query = "SELECT variable_name, CAST(variable_value AS TEXT) FROM main.global_variables";
            let mut statement = store.connection().prepare(query).map_err(failed)?;
            let found = statement
                .query_map([], |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default())))
                .map_err(failed)?;
            found.collect::<Result<_, _>>().map_err(failed)?
        };
        // Drivers ask for some by name; who wants to see all wants Weir's.
        if whose == Variables::All && *filter != Filter::None {
            rows.extend(all().map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        rows.retain(|(name, _)| name.starts_with(prefix) && matches(filter, name));
        rows.sort();
        let shown = rows.into_iter().map(|(name, value)| {
            let is_hidden = weir_config::is_secret_name(&name) && !value.is_empty();
            vec![name, if is_hidden { HIDDEN.to_owned() } else { value }]
        });
        self.rows(&["Variable_name", "Value"], shown, format)
    }

    fn table_or_refuse(&self, schema: Option<&str>, name: &str) -> Result<&'static TableDef, SqlError> {
        let message = || SqlError::new(error::NO_SUCH_TABLE, format!("no such table: {name}"));
        self.find_table(schema, name).ok_or_else(message)
    }

    fn rows(
        &self,
        columns: &[&str],
        rows: impl IntoIterator<Item = Vec<String>>,
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        let columns = columns.iter().map(|name| (*name).to_owned()).collect();
        let mut result = Rows::new(columns, format, self.shared.memory.budget());
        for row in rows {
            result.push(row.iter().map(|value| Some(value.as_bytes())))?;
        }
        Ok(Reply::Rows(result.into()))
    }
}

fn main_columns(name: &str) -> String {
    let found = tables().iter().find(|table| table.schema == MAIN && table.name == name);
    let names = found.map(|table| table.columns.iter().map(|column| column.name).collect::<Vec<_>>());
    names.unwrap_or_default().join(", ")
}

/// `Field, Type, Null, Key, Default, Extra`.
fn columns_sql(table: &TableDef, is_full: bool, filter: &Filter) -> String {
    let more = if is_full { ", NULL AS Collation, 'select' AS Privileges, '' AS Comment" } else { "" };
    format!(
        "SELECT COLUMN_NAME AS Field, COLUMN_TYPE AS Type, IS_NULLABLE AS \"Null\", COLUMN_KEY AS \"Key\", \
         COLUMN_DEFAULT AS \"Default\", EXTRA AS Extra{more} FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {} \
         AND TABLE_NAME = {} AND {} ORDER BY ORDINAL_POSITION",
        sqlite_text(table.schema),
        sqlite_text(&table.name),
        condition("COLUMN_NAME", filter)
    )
}

/// A filter in SQL.
fn condition(column: &str, filter: &Filter) -> String {
    let like = |pattern: &str| format!("{column} LIKE {} ESCAPE '\\'", sqlite_text(pattern));
    match filter {
        Filter::None => "1".to_owned(),
        Filter::Like(pattern) => like(&whole(pattern)),
        Filter::Any(patterns) => {
            let patterns: Vec<_> = patterns.iter().map(|pattern| like(&whole(pattern))).collect();
            format!("({})", patterns.join(" OR "))
        }
        Filter::Sql(condition) => format!("({condition})"),
    }
}

/// SQLite refuses a pattern that ends in the escape character.
fn whole(pattern: &str) -> String {
    let backslashes = pattern.chars().rev().take_while(|c| *c == '\\').count();
    if backslashes % 2 == 1 { format!("{pattern}\\") } else { pattern.to_owned() }
}

/// The same in Rust.
fn matches(filter: &Filter, name: &str) -> bool {
    match filter {
        Filter::None => true,
        Filter::Like(pattern) => like(pattern, name),
        Filter::Any(patterns) => patterns.iter().any(|pattern| like(pattern, name)),
        // Only of tables, which are in SQLite.
        Filter::Sql(_) => false,
    }
}

/// LIKE: `%` any characters, `_` one, `\` takes the next one as it is; letter case aside.
fn like(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.to_lowercase().chars().collect();
    let text: Vec<char> = text.to_lowercase().chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last % does not fit.
    let mut retry = None;
    while t < text.len() {
        let literal = match pattern.get(p) {
            Some('%') => {
                retry = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some('_') => Some((1, text[t])),
            Some('\\') if p + 1 < pattern.len() => Some((2, pattern[p + 1])),
            Some(c) => Some((1, *c)),
            None => None,
        };
        match (literal, retry) {
            (Some((width, c)), _) if c == text[t] => {
                p += width;
                t += 1;
            }
            (_, Some((after, from))) => {
                retry = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
            _ => return false,
        }
    }
    pattern[p.min(pattern.len())..].iter().all(|c| *c == '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_is_mysql_s() {
        for (pattern, text, fits) in [
            ("%version%", "version_comment", true),
            ("lower_case_%", "lower_case_table_names", true),
            ("sql_mode", "SQL_MODE", true),
            ("sql\\_mode", "sqlxmode", false),
            ("%a%b", "xaxbab", true),
            ("%a%b", "xaxba", false),
            ("", "x", false),
            ("%", "", true),
            ("x\\", "x\\", true),
        ] {
            assert_eq!(like(pattern, text), fits, "{pattern} {text}");
        }
    }
}
