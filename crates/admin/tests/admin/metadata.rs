//! Asks what drivers and tools ask to find tables and columns.

use super::{Rig, query};

/// The forms in which Connector/J and tools look for tables, columns and keys.
#[test]
fn tables_columns_and_keys_are_found_as_drivers_look_for_them() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    // getTables with types, MySQL Connector/J: HAVING is about the new name of a column.
    let typed = "SELECT TABLE_SCHEMA AS TABLE_CAT, TABLE_NAME, CASE WHEN TABLE_TYPE='BASE TABLE' THEN CASE WHEN \
                 TABLE_SCHEMA = 'mysql' THEN 'SYSTEM TABLE' ELSE 'TABLE' END ELSE TABLE_TYPE END AS TABLE_TYPE, NULL AS \
                 TYPE_CAT FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = 'main' AND TABLE_NAME LIKE 'mysql_user%' \
                 HAVING TABLE_TYPE IN ('TABLE',null,null) ORDER BY TABLE_TYPE, TABLE_SCHEMA, TABLE_NAME";
    assert_eq!(query(&mut admin, typed), [["main", "mysql_users", "TABLE", "NULL"]]);
    assert_eq!(query(&mut admin, &typed.replace("'TABLE',null", "'VIEW',null")), [[""; 0]; 0]);
    assert_eq!(query(&mut admin, &format!("{typed} LIMIT 0")), [[""; 0]; 0]);
    let grouped =
        "SELECT TABLE_SCHEMA AS s, COUNT(*) AS c FROM information_schema.TABLES GROUP BY s HAVING c > 3";
    assert!(query(&mut admin, grouped).len() > 2);
    let whole = "SELECT COUNT(*) AS c FROM information_schema.TABLES HAVING COUNT(*) > 3";
    assert_eq!(query(&mut admin, whole).len(), 1);
    // getColumns, MariaDB Connector/J.
    let columns = "SELECT COLUMN_NAME, IF(NUMERIC_PRECISION IS NULL, LEAST(CHARACTER_MAXIMUM_LENGTH,2147483647), \
                   NUMERIC_PRECISION) COLUMN_SIZE, CONVERT (CASE DATA_TYPE WHEN 'year' THEN NUMERIC_SCALE WHEN 'tinyint' \
                   THEN 0 ELSE NUMERIC_SCALE END, UNSIGNED INTEGER) DECIMAL_DIGITS, IF(IS_NULLABLE = 'yes',1,0) NULLABLE, \
                   COLUMN_DEFAULT COLUMN_DEF, UCASE(COLUMN_TYPE), IF(EXTRA = 'auto_increment','YES','NO') FROM \
                   INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA='main' AND TABLE_NAME LIKE 'mysql_servers' AND \
                   COLUMN_NAME IN ('port', 'comment') ORDER BY ORDINAL_POSITION";
    let port = ["port", "19", "0", "0", "3306", "BIGINT", "NO"];
    let comment = ["comment", "65535", "NULL", "0", "", "VARCHAR", "NO"];
    assert_eq!(query(&mut admin, columns), [port, comment]);
    assert_eq!(
        query(&mut admin, "SELECT CONVERT('5' USING utf8mb4), CONVERT(CONVERT(2.5, CHAR), SIGNED INTEGER)"),
        [["5", "2"]]
    );
    // getPrimaryKeys
    let keys = "SELECT A.COLUMN_NAME, B.SEQ_IN_INDEX KEY_SEQ FROM INFORMATION_SCHEMA.COLUMNS A, \
                INFORMATION_SCHEMA.STATISTICS B WHERE A.COLUMN_KEY in ('PRI','pri') AND B.INDEX_NAME='PRIMARY' AND \
                A.TABLE_SCHEMA = 'main' AND A.TABLE_NAME = 'mysql_servers' AND A.TABLE_SCHEMA = B.TABLE_SCHEMA AND \
                A.TABLE_NAME = B.TABLE_NAME AND A.COLUMN_NAME = B.COLUMN_NAME ORDER BY KEY_SEQ";
    assert_eq!(query(&mut admin, keys), [["hostgroup_id", "1"], ["hostname", "2"], ["port", "3"]]);
    assert_eq!(query(&mut admin, "SHOW KEYS FROM `mysql_servers` FROM `main`").len(), 3);
    for empty in [
        "SELECT GRANTEE FROM INFORMATION_SCHEMA.TABLE_PRIVILEGES",
        "SELECT GRANTEE FROM INFORMATION_SCHEMA.COLUMN_PRIVILEGES WHERE TABLE_SCHEMA='main'",
        "SELECT host,db,table_name,grantor,user,table_priv FROM mysql.tables_priv WHERE db = 'main'",
    ] {
        assert_eq!(query(&mut admin, empty), [[""; 0]; 0], "{empty}");
    }
    assert!(!query(&mut admin, "SELECT WORD FROM INFORMATION_SCHEMA.KEYWORDS WHERE RESERVED=1").is_empty());
    // Tools
    let all = query(&mut admin, "SHOW FULL TABLES FROM `stats`").len();
    for (condition, count) in [
        ("Table_type != 'VIEW'", all),
        ("Table_type = 'BASE TABLE' AND Tables_in_stats LIKE 'stats_%'", all),
        ("TABLE_TYPE LIKE 'VIEW'", 0),
        ("Tables_in_stats = 'stats_mysql_global'", 1),
    ] {
        let shown = query(&mut admin, &format!("SHOW FULL TABLES FROM `stats` WHERE {condition}"));
        assert_eq!(shown.len(), count, "{condition}");
        assert!(shown.iter().all(|row| row[1] == "BASE TABLE"));
    }
    assert_eq!(query(&mut admin, "SHOW TABLE STATUS FROM `stats`").len(), all);
    let fields = query(&mut admin, "SHOW FULL COLUMNS FROM `main`.`mysql_servers` LIKE 'weight'");
    assert_eq!(fields[0][..5], ["weight", "bigint", "NO", "", "1"]);
}
