//! Describes a table of the configuration: its columns as SQL declares them, and the numbers that they take.

use crate::table::variable::Effect;

/// Hostgroups, weights and counts are SQLite integers in ProxySQL; Weir keeps them within 31 bits.
pub(crate) const INT_MAX: u32 = i32::MAX as u32;
const I64_INT_MAX: i64 = i32::MAX as i64;

/// A table with its rows in `main`, in `disk` and, as `runtime_...`, in force.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// What is loaded with it, by its name in `runtime_checksums_values`.
    pub module: &'static str,
    /// In order.
    pub columns: &'static [Column],
    /// Of the whole table, in SQL.
    pub constraints: &'static [&'static str],
    /// The columns by which faults name a row, as files may call them.
    pub(crate) key: &'static [&'static str],
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it means, in Markdown, with links as from a page of the guide.
    pub doc: &'static str,
    /// What becomes of its value.
    pub effect: Effect,
    /// The least and the most that a number may be.
    pub(crate) range: (i64, i64),
    /// The number of a row that gives none; 0 is false.
    pub(crate) default: i64,
    sql: Sql,
}

/// The declaration of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sql {
    /// 0 or 1.
    Flag,
    Between(i64, i64),
    NotNegative,
    /// As it stands here.
    As(&'static str),
}

impl Column {
    const fn new(name: &'static str, sql: Sql, range: (i64, i64), default: i64, doc: &'static str) -> Self {
        Self { name, doc, effect: Effect::Built, range, default, sql }
    }

    /// It takes these numbers, whatever SQL says.
    pub(super) const fn takes(self, least: i64, most: i64) -> Self {
        Self { range: (least, most), ..self }
    }

    /// The number of a row that gives none.
    pub(super) const fn or(self, default: i64) -> Self {
        Self { default, ..self }
    }

    /// Only its default is built.
    pub(super) const fn one_value(self) -> Self {
        Self { effect: Effect::OneValue, ..self }
    }

    /// No value has an effect.
    pub(super) const fn without_effect(self) -> Self {
        Self { effect: Effect::None, ..self }
    }

    /// How it is declared, without its name.
    pub fn declaration(&self) -> String {
        let Self { name, default, .. } = self;
        match self.sql {
            Sql::Flag => format!("INT CHECK ({name} IN (0,1)) NOT NULL DEFAULT {default}"),
            Sql::Between(least, most) => {
                format!("INT CHECK ({name} BETWEEN {least} AND {most}) NOT NULL DEFAULT {default}")
            }
            Sql::NotNegative => format!("INT CHECK ({name} >= 0) NOT NULL DEFAULT {default}"),
            Sql::As(declaration) => declaration.to_owned(),
        }
    }

    /// The numbers that it takes, such as `0..10000000`; empty for other columns.
    pub fn values(&self) -> String {
        let (least, most) = self.range;
        if least == most { String::new() } else { format!("{least}..{most}") }
    }

    /// What a row that does not give it has, in words.
    pub fn shown_default(&self) -> String {
        let Sql::As(declaration) = self.sql else { return format!("`{}`", self.default) };
        let of_sql = declaration.split_once(" DEFAULT ").map(|(_, default)| default.trim_matches('\''));
        match of_sql {
            _ if self.default != 0 => format!("`{}`", self.default),
            Some(default) if !matches!(default, "" | "NULL") => format!("`{default}`"),
            Some("") => "empty".to_owned(),
            None if declaration.contains("AUTOINCREMENT") => "the next".to_owned(),
            None if declaration.replace("IS NOT NULL", "").contains("NOT NULL") => "required".to_owned(),
            _ => "none".to_owned(),
        }
    }
}

/// 0 or 1.
pub(super) const fn flag(name: &'static str, default: i64, doc: &'static str) -> Column {
    Column::new(name, Sql::Flag, (0, 1), default, doc)
}

/// A number between two others.
pub(super) const fn between(
    name: &'static str,
    least: i64,
    most: i64,
    default: i64,
    doc: &'static str,
) -> Column {
    Column::new(name, Sql::Between(least, most), (least, most), default, doc)
}

/// A number from 0 on.
pub(super) const fn count(name: &'static str, default: i64, doc: &'static str) -> Column {
    Column::new(name, Sql::NotNegative, (0, I64_INT_MAX), default, doc)
}

/// Text that is never missing.
pub(super) const fn text(name: &'static str, doc: &'static str) -> Column {
    sql(name, "VARCHAR NOT NULL DEFAULT ''", doc)
}

/// Text that may be missing, which means something else than an empty one.
pub(super) const fn any_text(name: &'static str, doc: &'static str) -> Column {
    sql(name, "VARCHAR", doc)
}

/// Text that must be given.
pub(super) const fn required_text(name: &'static str, doc: &'static str) -> Column {
    sql(name, "VARCHAR NOT NULL", doc)
}

/// What is declared so.
pub(super) const fn sql(name: &'static str, declaration: &'static str, doc: &'static str) -> Column {
    Column::new(name, Sql::As(declaration), (0, 0), 0, doc)
}
