//! Lists the ways in which a session can come to a state.

use weir_testkit::Family;

use crate::client::{Param, Step};
use crate::state::State;

/// What one cell does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Script {
    /// Routines, triggers and views that it needs: made before, by another session of the same account.
    pub(crate) setup: Vec<String>,
    /// What session A does.
    pub(crate) steps: Vec<Step>,
}

/// A way; it gives no script for states that it can't lead to.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// In the table, and for `--only`.
    pub(crate) name: &'static str,
    /// Whether only this family has it.
    family: Option<Family>,
    build: fn(&State) -> Option<Script>,
}

impl Way {
    const fn both(name: &'static str, build: fn(&State) -> Option<Script>) -> Way {
        Way { name, family: None, build }
    }

    const fn of(family: Family, name: &'static str, build: fn(&State) -> Option<Script>) -> Way {
        Way { name, family: Some(family), build }
    }

    /// What to do for a state, with placeholders.
    pub(crate) fn script(&self, state: &State) -> Option<Script> {
        let is_in_dml = self.name.starts_with("trigger") || self.name == "function-in-dml";
        if is_in_dml && state.is_deadly_in_dml {
            return None;
        }
        (self.build)(state)
    }
}

/// All ways at servers of a family, in the table's order.
pub(crate) fn catalogue(family: Family) -> Vec<Way> {
    ALL.iter().copied().filter(|way| way.family.is_none_or(|only| only == family)).collect()
}

const ALL: [Way; 51] = [
    Way::both("plain", |s| texts(s.statements.clone())),
    Way::both("local", |s| set(s, |name, value| format!("SET LOCAL {name} = {value}"))),
    Way::both("at-at-session", |s| set(s, |name, value| format!("SET @@session.{name} = {value}"))),
    Way::both("at-at", |s| set(s, |name, value| format!("SET @@{name} = {value}"))),
    Way::both("no-scope", |s| set(s, |name, value| format!("SET {name}={value}"))),
    Way::both("from-a-query", |s| set(s, |name, value| format!("SET SESSION {name} = (SELECT {value})"))),
    Way::both("list-first", |s| item(s, |item| format!("SET {item}, sql_safe_updates = 0"))),
    Way::both("list-last", |s| item(s, |item| format!("SET sql_safe_updates = 0, {item}"))),
    Way::both("list-fails", |s| item(s, |item| format!("SET {item}, no_such_variable = 1"))),
    Way::both("list-fails-late", |s| {
        item(s, |item| format!("SET {item}, PASSWORD FOR nobody@nowhere = 'x'"))
    }),
    Way::both("init-db", |s| Some(steps(vec![Step::InitDb(s.init_db.clone()?)]))),
    Way::both("expression", |s| texts(vec![format!("SELECT {}", s.expression.clone()?)])),
    Way::both("expression-in-do", |s| texts(vec![format!("DO {}", s.expression.clone()?)])),
    Way::both("expression-in-dml", |s| {
        texts(vec![format!("UPDATE <s>.counted SET n = n + 1 WHERE ({}) IS NOT NULL", s.expression.clone()?)])
    }),
    Way::both("prepared", |s| Some(steps(prepared(s)))),
    Way::both("prepared-parameter", prepared_parameter),
    Way::both("prepare-only", |s| Some(steps(s.statements.iter().cloned().map(Step::PrepareOnly).collect()))),
    Way::both("text-prepare", text_prepare),
    Way::of(Family::Mariadb, "execute-immediate", |s| {
        texts(s.statements.iter().map(|sql| format!("EXECUTE IMMEDIATE {}", literal(sql))).collect())
    }),
    Way::both("call", |s| Some(procedure(&body(s), vec![text("CALL fid()")]))),
    Way::both("call-fails", |s| {
        Some(procedure(&format!("{} SIGNAL SQLSTATE '45000';", body(s)), vec![text("CALL fid()")]))
    }),
    Way::both("call-prepared", |s| {
        Some(procedure(&body(s), vec![Step::Prepared("CALL fid()".to_owned(), vec![])]))
    }),
    Way::both("call-of-immediate", |s| {
        let one = |sql: &String| format!("PREPARE fidcall FROM {}; EXECUTE fidcall;", literal(sql));
        let body: String = s.statements.iter().map(one).collect();
        Some(procedure(&format!("{body} DEALLOCATE PREPARE fidcall;"), vec![text("CALL fid()")]))
    }),
    Way::of(Family::Mariadb, "compound", |s| texts(vec![format!("BEGIN NOT ATOMIC {} END", body(s))])),
    Way::of(Family::Mariadb, "compound-fails", |s| {
        texts(vec![format!("BEGIN NOT ATOMIC {} SIGNAL SQLSTATE '45000'; END", body(s))])
    }),
    Way::both("function", |s| Some(function(s, "", "SELECT fid_f()"))),
    Way::both("function-fails", |s| Some(function(s, "SIGNAL SQLSTATE '45000';", "SELECT fid_f()"))),
    Way::both("function-in-do", |s| Some(function(s, "", "DO fid_f()"))),
    Way::both("function-in-set", |s| Some(function(s, "", "SET SESSION sql_safe_updates = fid_f()"))),
    Way::both("function-in-dml", |s| {
        Some(function(s, "", "UPDATE <s>.counted SET n = n + 1 WHERE fid_f() = 1"))
    }),
    Way::both("function-prepared", |s| {
        let mut script = function(s, "", "");
        script.steps = vec![Step::Prepared("SELECT fid_f()".to_owned(), vec![])];
        Some(script)
    }),
    Way::both("view", |s| {
        let mut script = function(s, "", "SELECT * FROM fid_v");
        script.setup.push("CREATE OR REPLACE VIEW fid_v AS SELECT fid_f() AS n".to_owned());
        Some(script)
    }),
    Way::both("trigger-insert", |s| {
        Some(trigger(s, "BEFORE INSERT", "fid_t", "INSERT INTO fid_t VALUES (5)"))
    }),
    Way::both("trigger-insert-after", |s| {
        Some(trigger(s, "AFTER INSERT", "fid_t", "INSERT INTO fid_t VALUES (5)"))
    }),
    Way::both("trigger-insert-fails", |s| {
        Some(trigger(s, "BEFORE INSERT", "fid_u", "INSERT INTO fid_u VALUES (1)"))
    }),
    Way::both("trigger-update", |s| {
        Some(trigger(s, "BEFORE UPDATE", "fid_t", "UPDATE fid_t SET id = 1 WHERE id = 1"))
    }),
    Way::both("trigger-update-fails", |s| {
        Some(trigger(s, "BEFORE UPDATE", "fid_u", "UPDATE fid_u SET id = 2 WHERE id = 1"))
    }),
    Way::both("trigger-delete", |s| {
        // The same number of rows each time.
        let mut script = trigger(s, "BEFORE DELETE", "fid_t", "DELETE FROM fid_t WHERE id = 5");
        script.steps.insert(0, text("INSERT INTO fid_t VALUES (5)"));
        Some(script)
    }),
    Way::both("multi", |s| texts(vec![format!("SELECT 1; {}; SELECT 2", joined(s))])),
    Way::both("multi-first", |s| texts(vec![format!("{}; SELECT 2", joined(s))])),
    Way::both("multi-fails", |s| texts(vec![format!("{}; SELECT * FROM no_such_table", joined(s))])),
    Way::both("executable-comment", |s| {
        texts(s.statements.iter().map(|sql| format!("/*! {sql} */")).collect())
    }),
    Way::both("executable-comment-inside", |s| {
        set(s, |name, value| format!("SET sql_safe_updates = 0 /*!40000 , SESSION {name} = {value} */"))
    }),
    Way::both("skipped-comment", |s| {
        texts(s.statements.iter().map(|sql| format!("DO 0 /*!999999 ; {sql} */")).collect())
    }),
    Way::both("skipped-end", |s| {
        let ends = s.ends.iter().map(|sql| format!("/*!999999 {sql} */ DO 0"));
        texts_if(!s.ends.is_empty(), s.statements.iter().cloned().chain(ends).collect())
    }),
    Way::both("ended", |s| {
        texts_if(!s.ends.is_empty(), s.statements.iter().chain(&s.ends).cloned().collect())
    }),
    Way::both("reset", |s| {
        let mut made: Vec<Step> = s.statements.iter().cloned().map(Step::Text).collect();
        made.push(Step::Reset);
        Some(steps(made))
    }),
    Way::of(Family::Mariadb, "set-statement", |s| {
        set(s, |name, value| format!("SET STATEMENT {name} = {value} FOR DO 0"))
    }),
    Way::of(Family::Mysql, "hint", |s| {
        set(s, |name, value| format!("SELECT /*+ SET_VAR({name} = {value}) */ 1"))
    }),
    Way::both("committed", |s| in_transaction(s, "COMMIT")),
    Way::both("rolled-back", |s| in_transaction(s, "ROLLBACK")),
];

fn steps(steps: Vec<Step>) -> Script {
    Script { setup: Vec::new(), steps }
}

fn text(sql: &str) -> Step {
    Step::Text(sql.to_owned())
}

fn texts(texts: Vec<String>) -> Option<Script> {
    Some(steps(texts.into_iter().map(Step::Text).collect()))
}

fn texts_if(holds: bool, list: Vec<String>) -> Option<Script> {
    if holds { texts(list) } else { None }
}

/// Of variables only.
fn set(state: &State, sql: fn(&str, &str) -> String) -> Option<Script> {
    let setting = state.setting.as_ref()?;
    texts(vec![sql(&setting.variable, &setting.literal)])
}

/// Of what can stand in a SET's list only.
fn item(state: &State, sql: fn(&str) -> String) -> Option<Script> {
    texts(vec![sql(state.item.as_ref()?)])
}

fn joined(state: &State) -> String {
    state.statements.join("; ")
}

fn body(state: &State) -> String {
    state.statements.iter().map(|sql| format!("{sql};")).collect()
}

fn literal(sql: &str) -> String {
    format!("'{}'", sql.replace('\\', "\\\\").replace('\'', "''"))
}

fn prepared(state: &State) -> Vec<Step> {
    state.statements.iter().map(|sql| Step::Prepared(sql.clone(), vec![])).collect()
}

fn prepared_parameter(state: &State) -> Option<Script> {
    let setting = state.setting.as_ref()?;
    let param = match setting.literal.parse() {
        Ok(number) => Param::Int(number),
        Err(_) => Param::Text(setting.literal.trim_matches('\'').to_owned()),
    };
    Some(steps(vec![Step::Prepared(format!("SET SESSION {} = ?", setting.variable), vec![param])]))
}

fn text_prepare(state: &State) -> Option<Script> {
    let one = |sql: &String| {
        let prepare = Step::Text(format!("PREPARE fidp FROM {}", literal(sql)));
        [prepare, text("EXECUTE fidp"), text("DEALLOCATE PREPARE fidp")]
    };
    Some(steps(state.statements.iter().flat_map(one).collect()))
}

fn procedure(body: &str, steps: Vec<Step>) -> Script {
    let setup =
        vec!["DROP PROCEDURE IF EXISTS fid".to_owned(), format!("CREATE PROCEDURE fid() BEGIN {body} END")];
    Script { setup, steps }
}

fn function(state: &State, more: &str, sql: &str) -> Script {
    let setup = vec![
        "DROP FUNCTION IF EXISTS fid_f".to_owned(),
        format!(
            "CREATE FUNCTION fid_f() RETURNS INT NOT DETERMINISTIC MODIFIES SQL DATA BEGIN {} {more} RETURN 1; END",
            body(state)
        ),
    ];
    Script { setup, steps: vec![text(sql)] }
}

/// Of two tables that are alike but for a key, which makes statements fail behind their trigger.
fn trigger(state: &State, event: &str, table: &str, sql: &str) -> Script {
    let key = if table == "fid_u" { "PRIMARY KEY" } else { "" };
    let setup = vec![
        "DROP TABLE IF EXISTS fid_t, fid_u".to_owned(),
        format!("CREATE TABLE {table} (id INT {key})"),
        format!("INSERT INTO {table} VALUES (1), (2)"),
        format!("CREATE TRIGGER fid_r {event} ON {table} FOR EACH ROW BEGIN {} END", body(state)),
    ];
    Script { setup, steps: vec![text(sql)] }
}

fn in_transaction(state: &State, end: &str) -> Option<Script> {
    let mut made = vec!["BEGIN".to_owned(), "UPDATE <s>.counted SET n = n + 1".to_owned()];
    made.extend(state.statements.iter().cloned());
    made.push(end.to_owned());
    texts(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::catalogue as states;

    #[test]
    fn names_are_unique_and_every_way_leads_to_some_state() {
        for family in [Family::Mariadb, Family::Mysql] {
            let ways = catalogue(family);
            let mut names: Vec<&str> = ways.iter().map(|way| way.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), ways.len());
            let variable = State::variable(crate::state::Setting {
                variable: "time_zone".to_owned(),
                literal: "'+07:00'".to_owned(),
                reads: "+07:00".to_owned(),
            });
            let all: Vec<State> = states(family).into_iter().chain([variable]).collect();
            for way in &ways {
                assert!(all.iter().any(|state| way.script(state).is_some()), "{}", way.name);
            }
        }
    }

    #[test]
    fn a_statement_becomes_a_literal() {
        assert_eq!(literal(r"SET x = 'a\b'"), r"'SET x = ''a\\b'''");
    }
}
