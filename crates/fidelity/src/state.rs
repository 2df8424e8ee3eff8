//! Lists the state that a session can change, beside its variables ([`crate::variables`] finds those).
//!
//! Texts name schemas and accounts by placeholders, which [`crate::names::Names`] fills in for each stage.

use weir_testkit::Family;

/// A value that a variable is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The variable.
    pub(crate) variable: String,
    /// What stands behind the equals sign.
    pub(crate) literal: String,
    /// What the variable reads then.
    pub(crate) reads: String,
}

/// One kind of state: how a session gets it, how that can be seen, how it ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// In the table, and for `--only`.
    pub(crate) name: String,
    /// The statements that make it, one each.
    pub(crate) statements: Vec<String>,
    /// The same as a part of a SET's list.
    pub(crate) item: Option<String>,
    /// The same as an expression.
    pub(crate) expression: Option<String>,
    /// Of a variable.
    pub(crate) setting: Option<Setting>,
    /// COM_INIT_DB has the same effect with this schema.
    pub(crate) init_db: Option<String>,
    /// Asked in front of everything else, because what is asked later changes it, or because only they show it.
    pub(crate) looks: Vec<String>,
    /// What ends it.
    pub(crate) ends: Vec<String>,
    /// A look pins its session: others than A end that at once.
    pub(crate) do_looks_pin: bool,
    /// MariaDB 10.11 crashes when a statement that writes comes to it in a trigger or a function.
    pub(crate) is_deadly_in_dml: bool,
}

impl State {
    fn new(name: &str, statements: &[&str]) -> State {
        State { name: name.to_owned(), statements: owned(statements), ..State::default() }
    }

    /// A variable with its value.
    pub(crate) fn variable(setting: Setting) -> State {
        let item = format!("SESSION {} = {}", setting.variable, setting.literal);
        let mut state = State::new(&setting.variable, &[&format!("SET {item}")]);
        state.ends = vec![format!("SET SESSION {} = DEFAULT", setting.variable)];
        state.looks = looks_of_variable(&setting.variable);
        state.item = Some(item);
        state.is_deadly_in_dml = setting.variable == "tx_read_only";
        state.setting = Some(setting);
        state
    }

    fn item(mut self, item: &str) -> State {
        self.item = Some(item.to_owned());
        self
    }

    fn expression(mut self, expression: &str) -> State {
        self.expression = Some(expression.to_owned());
        self
    }

    fn looks(mut self, looks: &[&str]) -> State {
        self.looks = owned(looks);
        self
    }

    fn looks_pin(mut self) -> State {
        self.do_looks_pin = true;
        self
    }

    fn deadly_in_dml(mut self) -> State {
        self.is_deadly_in_dml = true;
        self
    }

    fn ends(mut self, ends: &[&str]) -> State {
        self.ends = owned(ends);
        self
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// What a variable does may show where its value does not.
fn looks_of_variable(name: &str) -> Vec<String> {
    owned(match name {
        "last_insert_id" | "identity" => &[ID],
        // The value can't be read: it is known from the first number that a seed of 77 gives.
        "rand_seed1" | "rand_seed2" => &["SELECT IF(RAND() = <seeded>, 'seeded', 'any')"],
        "sql_auto_is_null" => &["SELECT COUNT(*) FROM <s>.numbered WHERE id IS NULL"],
        "tx_isolation" | "transaction_isolation" => &["SELECT COUNT(*) FROM <s>.uncommitted"],
        _ => &[],
    })
}

/// The ids that later looks generate are none of the state's.
const ID: &str = "SELECT IF(LAST_INSERT_ID() IN (0, 900000042, 900004242), LAST_INSERT_ID(), 'generated')";

/// Everything that is no variable alone.
pub(crate) fn catalogue(family: Family) -> Vec<State> {
    let mut states = of_names_and_roles();
    states.extend(of_transactions());
    states.extend(of_objects());
    states.extend(of_results());
    if family == Family::Mariadb {
        states.extend(of_mariadb());
    }
    states
}

fn of_names_and_roles() -> Vec<State> {
    let mut schema = State::new("schema", &["USE <other>"]).ends(&["USE <a>"]);
    schema.init_db = Some("<other>".to_owned());
    vec![
        schema,
        State::new("user-variable", &["SET @fid = 7"])
            .item("@fid = 7")
            .expression("@fid := 7")
            .looks(&["SELECT @fid"])
            .ends(&["SET @fid = NULL"]),
        State::new("user-variable-into", &["SELECT 7 INTO @fid"]).looks(&["SELECT @fid"]),
        State::new("user-variable-and-setting", &["SET @fid = 7, time_zone = '+05:00'"])
            .item("@fid = 7, SESSION time_zone = '+05:00'")
            .looks(&["SELECT @fid"]),
        State::new("role", &["SET ROLE <role>"]).item("ROLE <role>").ends(&["SET ROLE NONE"]),
        State::new("setting-and-role", &["SET time_zone = '+05:00', ROLE <role>"])
            .item("SESSION time_zone = '+05:00', ROLE <role>"),
        State::new("names", &["SET NAMES latin1"]).item("NAMES latin1").ends(&["SET NAMES utf8mb4"]),
        State::new("names-collate", &["SET NAMES utf8mb4 COLLATE utf8mb4_bin"])
            .item("NAMES utf8mb4 COLLATE utf8mb4_bin"),
        State::new("character-set", &["SET CHARACTER SET latin1"]).item("CHARACTER SET latin1"),
        State::new("results-utf16", &["SET character_set_results = utf16"])
            .item("SESSION character_set_results = utf16"),
        State::new("results-null", &["SET character_set_results = NULL"])
            .item("SESSION character_set_results = NULL"),
        State::new("no-autocommit", &["SET autocommit = 0", "INSERT INTO <s>.moved VALUES (1)"])
            .looks(&["SELECT COUNT(*) FROM <s>.moved"])
            .ends(&["ROLLBACK", "SET autocommit = 1"]),
        State::new("sql-mode-quotes", &["SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"])
            .item("SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"),
        State::new(
            "tracking-off",
            &["SET session_track_schema = 0, session_track_system_variables = '', session_track_state_change = 0"],
        )
        .item("SESSION session_track_schema = 0, SESSION session_track_system_variables = '', SESSION session_track_state_change = 0"),
        State::new(
            "tracking-off-and-schema",
            &["SET session_track_schema = 0, session_track_system_variables = ''", "USE <other>"],
        ),
        State::new("setting-without-scope", &["SET @@time_zone = '+05:00'"]),
        State::new("completion-release", &["SET completion_type = 'RELEASE'"])
            .item("SESSION completion_type = 'RELEASE'"),
    ]
}

fn of_transactions() -> Vec<State> {
    vec![
        State::new("transaction", &["BEGIN", "INSERT INTO <s>.moved VALUES (1)"])
            .looks(&["SELECT COUNT(*) FROM <s>.moved"])
            .ends(&["ROLLBACK"]),
        State::new("transaction-begun", &["START TRANSACTION"]).ends(&["COMMIT"]),
        State::new("transaction-read-only", &["START TRANSACTION READ ONLY"]).ends(&["COMMIT"]),
        State::new("transaction-in-no-autocommit", &["SET autocommit = 0", "BEGIN"]).ends(&["COMMIT"]),
        State::new("savepoint", &["BEGIN", "SAVEPOINT fid"])
            .looks(&["ROLLBACK TO fid"])
            .ends(&["RELEASE SAVEPOINT fid", "COMMIT"]),
        State::new("savepoint-in-no-autocommit", &["SET autocommit = 0", "SAVEPOINT fid"])
            .looks(&["ROLLBACK TO fid"])
            .ends(&["RELEASE SAVEPOINT fid", "SET autocommit = 1"]),
        State::new("next-isolation", &["SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"])
            .looks(&["SELECT COUNT(*) FROM <s>.uncommitted"])
            .ends(&["BEGIN", "COMMIT"]),
        State::new("next-read-only", &["SET TRANSACTION READ ONLY"])
            .looks(&["BEGIN", "INSERT INTO <s>.moved VALUES (1)", "ROLLBACK"])
            .deadly_in_dml(),
        State::new("xa", &["XA START '<lock>'"]).ends(&["XA END '<lock>'", "XA ROLLBACK '<lock>'"]),
    ]
}

fn of_objects() -> Vec<State> {
    vec![
        State::new("temporary-table", &["CREATE TEMPORARY TABLE <s>.shadow AS SELECT 'temporary' AS what"])
            .looks(&["SELECT what FROM <s>.shadow"])
            .ends(&["DROP TEMPORARY TABLE <s>.shadow"]),
        State::new("user-lock", &["DO GET_LOCK('<lock>', 0)"])
            .expression("GET_LOCK('<lock>', 0)")
            .looks(&[
                "SELECT IS_FREE_LOCK('<lock>')",
                "SELECT GET_LOCK('<lock>', 0)",
                "DO RELEASE_LOCK('<lock>')",
            ])
            .ends(&["DO RELEASE_LOCK('<lock>')"]),
        State::new("table-lock", &["LOCK TABLES <s>.locked WRITE"]).ends(&["UNLOCK TABLES"]),
        State::new("text-prepare", &["PREPARE fid FROM 'SELECT 5'"])
            .looks(&["EXECUTE fid"])
            .looks_pin()
            .ends(&["DEALLOCATE PREPARE fid"]),
        State::new("handler", &["HANDLER <s>.shadow OPEN AS fid"])
            .looks(&["HANDLER fid READ FIRST"])
            .ends(&["HANDLER fid CLOSE"]),
        State::new("flushed-table-lock", &["FLUSH TABLES <s>.locked WITH READ LOCK"])
            .ends(&["UNLOCK TABLES"]),
    ]
}

fn of_results() -> Vec<State> {
    vec![
        State::new("last-insert-id", &["DO LAST_INSERT_ID(900000042)"])
            .expression("LAST_INSERT_ID(900000042)")
            .looks(&[ID]),
        State::new(
            "last-insert-id-where",
            &["DELETE FROM <s>.numbered WHERE id = LAST_INSERT_ID(900000042)"],
        )
        .looks(&[ID]),
        State::new("generated-id", &["INSERT INTO <s>.numbered () VALUES ()"])
            .looks(&["SELECT LAST_INSERT_ID() > 0"]),
        State::new("auto-is-null", &["SET sql_auto_is_null = 1", "INSERT INTO <s>.numbered () VALUES ()"])
            .looks(&["SELECT COUNT(*) FROM <s>.numbered WHERE id IS NULL"]),
        State::new("seeds", &["SET rand_seed1 = 77, rand_seed2 = 77"])
            .item("rand_seed1 = 77, rand_seed2 = 77")
            .looks(&["SELECT IF(RAND() = <seeded>, 'seeded', 'any')"]),
        State::new("found-rows", &["SELECT 1 UNION SELECT 2 UNION SELECT 3"]).looks(&["SELECT FOUND_ROWS()"]),
        State::new("row-count", &["UPDATE <s>.counted SET n = n + 1"]).looks(&["SELECT ROW_COUNT()"]),
        State::new("warnings", &["SELECT CAST('x' AS SIGNED) FROM <s>.counted"])
            .looks(&["SELECT @@warning_count", "SHOW WARNINGS"]),
    ]
}

fn of_mariadb() -> Vec<State> {
    vec![
        State::new("sequence", &["DO NEXTVAL(<s>.sequence)"])
            .expression("NEXTVAL(<s>.sequence)")
            .looks(&["SELECT LASTVAL(<s>.sequence) IS NULL"])
            .looks_pin(),
        State::new("backup-lock", &["BACKUP LOCK <s>.locked"]).ends(&["BACKUP UNLOCK"]),
        State::new("names-in-old-mode", &["SET old_mode = ''", "SET NAMES utf8"]),
        State::new(
            "transaction-with-settings",
            &["SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY"],
        )
        .looks(&["SELECT COUNT(*) FROM <s>.uncommitted"])
        .deadly_in_dml(),
    ]
}
