//! Reads from SHOW GRANTS what an account may do everywhere.

use std::collections::BTreeSet;

/// More names of privileges than any server has.
const PRIVILEGES_MAX: usize = 512;

/// What an account may do `ON *.*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// ALL PRIVILEGES.
    has_all: bool,
    /// Those that are named, in capitals.
    named: BTreeSet<String>,
    /// WITH GRANT OPTION.
    may_grant: bool,
    /// It has roles, or nothing was said: what is not named may be there.
    is_incomplete: bool,
}

impl Grants {
    /// Reads the rows, such as ``GRANT SELECT, RELOAD ON *.* TO `a`@`%` WITH GRANT OPTION``. MySQL has a row of its own for
    /// dynamic privileges; a row without `ON` names roles.
    pub fn of_rows<'a>(rows: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut grants, mut is_told, mut has_roles) = (Self::default(), false, false);
        for row in rows {
            let Some(rest) = row.trim().strip_prefix("GRANT ") else { continue };
            let Some((privileges, on)) = rest.split_once(" ON *.* TO ") else {
                // Of one schema, or of roles.
                has_roles |= !rest.contains(" ON ");
                continue;
            };
            is_told = true;
            grants.may_grant |= on.contains("WITH GRANT OPTION");
            for privilege in privileges.split(',').map(|privilege| privilege.trim().to_ascii_uppercase()) {
                grants.has_all |= privilege == "ALL PRIVILEGES" || privilege == "ALL";
                if grants.named.len() < PRIVILEGES_MAX {
                    grants.named.insert(privilege);
                }
            }
        }
        grants.is_incomplete = has_roles || !is_told;
        grants
    }

    /// What an account lacks that is to make accounts; empty also where that can't be told.
    pub fn lacks_for_accounts(&self) -> Vec<&'static str> {
        if self.is_incomplete {
            return Vec::new();
        }
        let may_create = self.has_all || self.named.contains("CREATE USER");
        let lacking = [("CREATE USER", may_create), ("GRANT OPTION", self.may_grant)];
        lacking.into_iter().filter(|(_, has)| !has).map(|(privilege, _)| privilege).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacks(rows: &[&str]) -> Vec<&'static str> {
        Grants::of_rows(rows.iter().copied()).lacks_for_accounts()
    }

    #[test]
    fn who_may_make_accounts() {
        let all =
            "GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` IDENTIFIED BY PASSWORD '*A' WITH GRANT OPTION";
        assert!(lacks(&[all, "GRANT PROXY ON ''@'%' TO 'root'@'localhost' WITH GRANT OPTION"]).is_empty());
        assert_eq!(lacks(&["GRANT ALL PRIVILEGES ON *.* TO `app`@`%`"]), ["GRANT OPTION"]);
        assert_eq!(lacks(&["GRANT USAGE ON *.* TO `app`@`%`"]), ["CREATE USER", "GRANT OPTION"]);
        let mysql = "GRANT SELECT, CREATE USER ON *.* TO `a`@`%` WITH GRANT OPTION";
        assert!(
            lacks(&[mysql, "GRANT BACKUP_ADMIN,CLONE_ADMIN ON *.* TO `a`@`%` WITH GRANT OPTION"]).is_empty()
        );
    }

    #[test]
    fn where_nothing_is_known_nothing_lacks() {
        assert!(lacks(&[]).is_empty());
        assert!(lacks(&["GRANT USAGE ON *.* TO `a`@`%`", "GRANT `dba`@`%` TO `a`@`%`"]).is_empty());
        assert!(lacks(&["GRANT `dba`@`%` TO `a`@`%`", "GRANT USAGE ON *.* TO `a`@`%`"]).is_empty());
    }
}
