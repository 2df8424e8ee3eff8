//! Lists the words that decide what a statement is.

use crate::table::NameTable;

macro_rules! words {
    ($($name:ident)*) => {
        /// A word of SQL that the scanner knows. Only unquoted identifiers can be one.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Word {
            /// Any other identifier.
            NONE,
            $($name,)*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
        const WORDS: &[Word] = &[$(Word::$name),*];
    };
}

words! {
    ALL ALTER ANALYZE AND ANY AS ATOMIC
    BACKUP BEGIN BINLOG
    CACHE CALL CASE CHANGE CHARACTER CHARSET CHECK CHECKSUM CLONE CLOSE COLUMNS COMMIT CONNECTION CONTAINS
    COUNT CREATE
    DATABASE DATA DEALLOCATE DECLARE DEFAULT DEFINER DELAYED DELETE DESC DESCRIBE DETERMINISTIC DIAGNOSTICS
    DISTINCT DISTINCTROW DO DROP DUAL DUMPFILE
    EACH ELSE END ERRORS EVENT EXCEPT EXECUTE EXISTS EXPLAIN EXPORT
    FETCH FLUSH FOLLOWS FOR FOUND FROM FUNCTION
    GET GLOBAL GRANT GROUP
    HANDLER HARD HAVING HELP HIGH_PRIORITY
    ID IF IGNORE IMMEDIATE IMPORT INDEX INSERT INSTALL INSTANCE INTERSECT INTO INVOKER IS
    JOIN
    KILL
    LANGUAGE LATERAL LIMIT LOAD LOCAL LOCK LOOP LOW_PRIORITY
    MEMBER MODIFIES
    NAMES NO NOT NO_WRITE_TO_BINLOG
    OF OFFSET ON ONLY OPEN OPTIMIZE OR ORDER OUTFILE
    PACKAGE PASSWORD PERSIST PERSIST_ONLY PRECEDES PREPARE PROCEDURE PURGE
    QUERY
    READ READS RECOVER RECURSIVE RELEASE RENAME REPAIR REPEAT REPLACE RESET RESIGNAL RESOURCE RESTART RETURN
    RETURNS REVOKE ROLE ROLLBACK ROW
    SAVEPOINT SECURITY SELECT SEQUENCE SESSION SET SHARE SHOW SHUTDOWN SIGNAL SLAVE SOFT SOME SQL
    SQL_BIG_RESULT SQL_BUFFER_RESULT SQL_CACHE SQL_CALC_FOUND_ROWS SQL_NO_CACHE SQL_SMALL_RESULT
    SQLEXCEPTION SQLSTATE SQLWARNING STAGE START STATEMENT STOP STRAIGHT_JOIN
    TABLE TABLES TEMPORARY TO TRANSACTION TRIGGER TRUNCATE
    UNINSTALL UNION UNLOCK UPDATE USE USER USING
    VALUE VALUES VIEW
    WARNINGS WHERE WHILE WINDOW WITH WORK
    XA
}

static TABLE: NameTable<512> = NameTable::new(NAMES);

impl Word {
    /// The word that `text` spells in any letter case.
    #[inline]
    pub(crate) fn of(text: &[u8]) -> Self {
        // No word is longer than SQL_CALC_FOUND_ROWS or shorter than AS.
        if text.len() < 2 || text.len() > 19 {
            return Self::NONE;
        }
        match TABLE.find(text) {
            Some(index) => WORDS.get(usize::from(index)).copied().unwrap_or(Self::NONE),
            None => Self::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_in_any_case() {
        for (name, word) in NAMES.iter().zip(WORDS) {
            assert_eq!(Word::of(name.as_bytes()), *word);
            assert_eq!(Word::of(name.to_ascii_lowercase().as_bytes()), *word);
            assert_eq!(Word::of(format!("{name}_").as_bytes()), Word::NONE);
        }
        assert_eq!(Word::of(b"selec\x54"), Word::SELECT);
        assert_eq!(Word::of(b""), Word::NONE);
    }
}
