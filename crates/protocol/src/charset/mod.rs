//! Finds character sets and collations by the ids that go over the wire.
//!
//! One table serves MariaDB and MySQL: an id means the same collation on both, or is unknown to
//! one of them. They differ in two points:
//!
//! - utf8mb4's default is `utf8mb4_general_ci` on MariaDB (up to 11.5, and then set by
//!   `character_set_collations`) and `utf8mb4_0900_ai_ci` on MySQL, see [`Server`].
//! - Five ids (122, 149, 181, 213, 245) are named `..._croatian_ci` by MySQL and
//!   `..._croatian_mysql561_ci` by MariaDB, which has collations of its own under the former
//!   names. The table has MariaDB's names.

mod encoding;
mod table;

pub use encoding::Encoding;

use table::COLLATIONS;

/// A collation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collation {
    /// As in column definitions and COM_CHANGE_USER; handshakes carry its low 8 bits.
    pub id: u16,
    /// The character set: `utf8mb4`.
    pub charset: &'static str,
    /// The name: `utf8mb4_general_ci`.
    pub name: &'static str,
    /// Whether `SET NAMES charset` means this collation (for utf8mb4, on MariaDB).
    pub is_default: bool,
}

impl Collation {
    /// Whether statements can be written in its character set (`character_set_client`): servers refuse those whose
    /// ASCII takes more than one byte.
    pub fn is_for_clients(&self) -> bool {
        !matches!(self.charset, "ucs2" | "utf16" | "utf16le" | "utf32")
    }
}

/// The kind of server, where it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    /// MariaDB.
    MariaDb,
    /// MySQL 8 or later, or Percona Server.
    MySql,
}

/// The collation id of binary strings and of numbers.
pub const BINARY: u16 = 63;
/// The collation id of `utf8mb3_general_ci`, which servers give to names and metadata.
pub const UTF8MB3_GENERAL_CI: u16 = 33;
/// The collation id of `utf8mb4_general_ci`.
pub const UTF8MB4_GENERAL_CI: u16 = 45;
/// The collation id of `utf8mb4_0900_ai_ci`.
pub const UTF8MB4_0900_AI_CI: u16 = 255;

/// The collation with this id.
pub fn by_id(id: u16) -> Option<&'static Collation> {
    let at = COLLATIONS.binary_search_by_key(&id, |collation| collation.id).ok()?;
    COLLATIONS.get(at)
}

/// The collation with this name, in any case; `utf8_...` is `utf8mb3_...`.
///
/// Walks the table: for a change of state, not for every statement.
pub fn by_name(name: &[u8]) -> Option<&'static Collation> {
    COLLATIONS.iter().find(|collation| {
        collation.name.as_bytes().eq_ignore_ascii_case(name) || is_old_utf8(collation.name, name)
    })
}

/// The default collation of a character set, in any case; `utf8` is `utf8mb3`.
pub fn default_of(charset: &[u8], server: Server) -> Option<&'static Collation> {
    let default = COLLATIONS.iter().find(|collation| {
        let name = collation.charset;
        collation.is_default && (name.as_bytes().eq_ignore_ascii_case(charset) || is_old_utf8(name, charset))
    })?;
    match (default.id, server) {
        (UTF8MB4_GENERAL_CI, Server::MySql) => by_id(UTF8MB4_0900_AI_CI),
        _ => Some(default),
    }
}

/// Whether `asked` is `name` as it was written before utf8 became utf8mb3.
fn is_old_utf8(name: &str, asked: &[u8]) -> bool {
    let (Some(rest), Some((head, tail))) = (name.strip_prefix("utf8mb3"), asked.split_at_checked(4)) else {
        return false;
    };
    head.eq_ignore_ascii_case(b"utf8") && tail.eq_ignore_ascii_case(rest.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn ids_are_sorted_and_names_unique() {
        assert!(COLLATIONS.windows(2).all(|pair| pair[0].id < pair[1].id));
        let mut names = HashMap::new();
        for collation in COLLATIONS {
            assert_eq!(names.insert(collation.name, collation.id), None, "{}", collation.name);
            assert!(collation.name.starts_with(collation.charset));
            assert_eq!(by_id(collation.id), Some(collation));
            assert_eq!(by_name(collation.name.to_uppercase().as_bytes()), Some(collation));
        }
    }

    #[test]
    fn every_character_set_has_one_default() {
        let mut defaults: HashMap<&str, usize> = HashMap::new();
        for collation in COLLATIONS {
            *defaults.entry(collation.charset).or_default() += usize::from(collation.is_default);
        }
        assert_eq!(defaults.len(), 41);
        assert!(defaults.values().all(|&count| count == 1), "{defaults:?}");
    }

    #[test]
    fn defaults_follow_the_server() {
        let id = |charset: &[u8], server| default_of(charset, server).map(|collation| collation.id);
        assert_eq!(id(b"utf8mb4", Server::MariaDb), Some(45));
        assert_eq!(id(b"UTF8MB4", Server::MySql), Some(255));
        assert_eq!(id(b"utf8", Server::MySql), Some(33));
        assert_eq!(id(b"latin1", Server::MariaDb), Some(8));
        assert_eq!(id(b"utf9", Server::MariaDb), None);
    }

    #[test]
    fn well_known_ids() {
        for (id, name) in [
            (8, "latin1_swedish_ci"),
            (28, "gbk_chinese_ci"),
            (63, "binary"),
            (224, "utf8mb4_unicode_ci"),
            (248, "gb18030_chinese_ci"),
            (255, "utf8mb4_0900_ai_ci"),
            (309, "utf8mb4_0900_bin"),
            (608, "utf8mb4_croatian_ci"),
            (2048, "utf8mb3_uca1400_ai_ci"),
            (2304, "utf8mb4_uca1400_ai_ci"),
        ] {
            assert_eq!(by_id(id).map(|collation| collation.name), Some(name));
        }
        assert_eq!(by_name(b"utf8_general_ci").map(|collation| collation.id), Some(33));
        assert_eq!((by_id(0), by_id(17), by_id(u16::MAX)), (None, None, None));
    }
}
