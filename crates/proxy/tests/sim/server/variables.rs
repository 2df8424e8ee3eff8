//! Keeps a model server's variables of a session: SET, NAMES, and what is reported of them.

use weir_protocol::error;
use weir_protocol::ok::SessionTrack;

use super::Conn;
use crate::cluster::Cluster;

const DEFAULT_SQL_MODE: &str = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION";

impl Conn {
    pub(super) fn variable(&self, name: &str) -> &str {
        self.session.variables.get(name).map_or("", String::as_str)
    }

    /// SET of variables, NAMES and `@x`: a comma and a space separate them.
    pub(super) fn set(&mut self, cluster: &mut Cluster, list: &str) {
        if list.contains("innodb_lock_wait_timeout") && cluster.nodes[self.node].refuses_lock_wait {
            self.session.is_refused = true;
            let message = "Variable 'innodb_lock_wait_timeout' can't be set to the value of '7'";
            return self.error(error::WRONG_VALUE_FOR_VAR, message);
        }
        let mut reported: Vec<(String, String)> = Vec::new();
        for part in list.split(", ") {
            let part = part.strip_prefix("SESSION ").unwrap_or(part);
            if let Some(names) = part.strip_prefix("NAMES ") {
                let (charset, collation) = match names.split_once(" COLLATE ") {
                    Some((charset, collation)) => (charset.trim_matches('\''), collation.trim_matches('\'')),
                    None => (names.trim_matches('\''), default_collation(names.trim_matches('\''))),
                };
                self.set_names(charset, collation);
                for name in ["character_set_client", "character_set_connection", "character_set_results"] {
                    reported.push((name.into(), charset.into()));
                }
                continue;
            }
            let Some((name, value)) = part.split_once('=') else {
                cluster.fault(format!("a server was sent SET {list:?}"));
                continue;
            };
            self.assign(cluster, name, value.trim_matches('\''), &mut reported);
        }
        let mut tracks: Vec<SessionTrack<'_>> = reported
            .iter()
            .map(|(name, value)| SessionTrack::SystemVariable {
                name: name.as_bytes(),
                value: value.as_bytes(),
            })
            .collect();
        tracks.push(SessionTrack::StateChange(true));
        self.ok(self.status(), &tracks, |ok| ok);
    }

    fn assign(
        &mut self,
        cluster: &mut Cluster,
        name: &str,
        value: &str,
        reported: &mut Vec<(String, String)>,
    ) {
        match name {
            "@weir" => return,
            "@x" => {
                self.session.user_variable = value.into();
                return;
            }
            "insert_id" => {
                self.session.forced_id = value.parse().unwrap_or(0);
                return;
            }
            "last_insert_id" => self.session.insert_id = value.parse().unwrap_or(0),
            "autocommit" => {
                let is_on = matches!(value, "1" | "ON" | "DEFAULT");
                if is_on && self.session.in_transaction {
                    cluster.commit(self.node, &std::mem::take(&mut self.session.uncommitted));
                    self.session.in_transaction = false;
                }
                let value = if is_on { "ON" } else { "OFF" };
                self.session.variables.insert(name.into(), value.into());
                reported.push((name.into(), value.into()));
                return;
            }
            "sql_mode" if value == "@@session.sql_mode" => {
                let present = self.session.variables.get(name).map_or(DEFAULT_SQL_MODE, String::as_str);
                reported.push((name.into(), present.into()));
                return;
            }
            _ if name.starts_with("session_track_") => self.session.is_tracking = true,
            _ if value == "DEFAULT" => drop(self.session.variables.remove(name)),
            _ => drop(self.session.variables.insert(name.into(), value.into())),
        }
        if name == "character_set_connection" {
            self.session.variables.insert("collation_connection".into(), default_collation(value).into());
        }
        reported.push((name.into(), value.into()));
    }

    pub(super) fn set_names(&mut self, charset: &str, collation: &str) {
        for name in ["character_set_client", "character_set_connection", "character_set_results"] {
            self.session.variables.insert(name.into(), charset.into());
        }
        self.session.variables.insert("collation_connection".into(), collation.into());
    }
}

/// The collation that a character set begins with.
pub(crate) fn default_collation(charset: &str) -> &'static str {
    if charset == "latin1" { "latin1_swedish_ci" } else { "utf8mb4_general_ci" }
}
