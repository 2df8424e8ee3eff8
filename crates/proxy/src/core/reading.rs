//! As which servers a session's statements are read.
//!
//! MariaDB and MySQL, and their releases, read the same bytes differently: executable comments, and which functions are
//! theirs. What counts is the servers that may get a statement, which their greetings tell, not the version that clients
//! are shown. Where no server of a hostgroup has greeted yet, or they differ, only what all read alike is certain.

use std::sync::atomic::Ordering;

use weir_sql::{Family, Server};

use super::Core;
use super::model::{BackendKey, SessionKey};

/// A server's way to read, as a number; never 0.
fn encode(server: Server) -> u32 {
    let family = match server.family {
        Family::MariaDb => 1,
        Family::MySql => 2,
        Family::Either => 3,
    };
    family << 16 | u32::from(server.release)
}

fn decode(code: u32) -> Option<Server> {
    let release = (code & 0xFFFF) as u16;
    match code >> 16 {
        1 => Some(Server { family: Family::MariaDb, release }),
        2 => Some(Server { family: Family::MySql, release }),
        3 => Some(Server::UNKNOWN),
        _ => None,
    }
}

impl Core {
    /// A server has greeted this worker.
    pub(super) fn learn_reading(&mut self, key: BackendKey) {
        let backend = &self.backends[key];
        let code = encode(backend.greeted.reads_as);
        let pool = &mut self.servers[backend.server];
        pool.server.shared.reads_as.store(code, Ordering::Relaxed);
        pool.server.shared.note_query_attributes(backend.greeted.takes_query_attributes);
        if std::mem::replace(&mut pool.reads_as, code) != code {
            self.update_readings();
        }
    }

    /// How statements are read for each hostgroup, by what is known of its servers, and of those to which its reads go.
    pub(super) fn update_readings(&mut self) {
        let of_members = |group: &super::Group| {
            let codes = group
                .members
                .iter()
                .map(|member| self.servers[member.server].server.shared.reads_as.load(Ordering::Relaxed));
            codes.filter_map(decode).reduce(Server::or)
        };
        let mut readings = Vec::with_capacity(self.groups.len());
        for (id, group) in &self.groups {
            let readers = group.reader_hostgroup.and_then(|reader| self.groups.get(&reader));
            let both = of_members(group).into_iter().chain(readers.and_then(of_members));
            readings.push((*id, both.reduce(Server::or).unwrap_or(Server::UNKNOWN)));
        }
        let first = readings.first().map(|(_, reading)| *reading);
        let is_same = readings.iter().all(|(_, reading)| Some(*reading) == first);
        self.reads_as = first.filter(|_| is_same);
        for (id, reading) in readings {
            if let Some(group) = self.groups.get_mut(&id) {
                group.reads_as = reading;
            }
        }
    }

    /// How the session's statement is read where it goes.
    pub(super) fn reading_of(&self, key: SessionKey) -> Server {
        let session = &self.sessions[key];
        if let Some(lease) = session.lease {
            return self.backends[lease].greeted.reads_as;
        }
        if let Some(reading) = self.reads_as {
            return reading;
        }
        let hostgroup = session.work.decision.hostgroup.unwrap_or(session.home_hostgroup());
        self.reading_in(hostgroup)
    }

    fn reading_in(&self, hostgroup: u32) -> Server {
        self.groups.get(&hostgroup).map_or(Server::UNKNOWN, |group| group.reads_as)
    }

    /// Whether the session has to do with MariaDBs. As long as no server has greeted, it is as clients are told.
    pub(super) fn speaks_mariadb(&self, key: SessionKey) -> bool {
        self.is_mariadb(self.reading_of(key))
    }

    /// The same for who goes to a hostgroup.
    pub(super) fn speaks_mariadb_in(&self, hostgroup: u32) -> bool {
        self.is_mariadb(self.reading_in(hostgroup))
    }

    fn is_mariadb(&self, reading: Server) -> bool {
        match reading.family {
            Family::MariaDb => true,
            Family::MySql => false,
            Family::Either => self.snapshot.is_mariadb,
        }
    }

    /// The release of the servers in a hostgroup, if they are all the same.
    pub(super) fn release_in(&self, hostgroup: u32) -> Option<u16> {
        let reading = self.reading_in(hostgroup);
        (reading.family != Family::Either).then_some(reading.release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_survives_being_a_number() {
        for server in [Server::mariadb(10, 11), Server::mysql(9, 7), Server::UNKNOWN] {
            assert_eq!(decode(encode(server)), Some(server));
        }
        assert_eq!(decode(0), None);
    }
}
