//! Decides as which server's dialect a session's statements are read.
//!
//! MariaDB and MySQL, and their releases, read the same bytes differently: executable comments, and which functions are
//! theirs. What counts is the servers that may get a statement, which their greetings tell, not the version that clients
//! are shown. Where no server of a hostgroup has greeted yet, or they differ, only what all read alike is certain.

use std::sync::atomic::Ordering;

use weir_sql::{Family, Server};

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::pools::Pools;
use crate::session::Session;

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

impl Context {
    fn is_mariadb(&self, reading: Server) -> bool {
        match reading.family {
            Family::MariaDb => true,
            Family::MySql => false,
            Family::Either => self.snapshot.is_mariadb,
        }
    }
}

impl Pools {
    /// A server has greeted this worker.
    pub(crate) fn learn_reading(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let connection = &self.connections[key];
        let code = encode(connection.access.greeted.reads_as);
        let pool = &mut self.servers[connection.server];
        pool.server.shared.reads_as.store(code, Ordering::Relaxed);
        pool.server.shared.note_query_attributes(connection.access.greeted.takes_query_attributes);
        if std::mem::replace(&mut pool.reads_as, code) != code {
            self.update_readings(ctx);
        }
    }

    /// How statements are read for each hostgroup, by what is known of its servers, and of those to which its reads go.
    pub(crate) fn update_readings(&mut self, ctx: &mut Context) {
        let of_members = |group: &crate::pool::pools::Group| {
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
        ctx.learnt.reads_as = first.filter(|_| is_same);
        for (id, reading) in readings {
            if let Some(group) = self.groups.get_mut(&id) {
                group.reads_as = reading;
            }
        }
    }

    fn reading_in(&self, hostgroup: u32) -> Server {
        self.groups.get(&hostgroup).map_or(Server::UNKNOWN, |group| group.reads_as)
    }

    /// The same for who goes to a hostgroup.
    pub(crate) fn speaks_mariadb_in(&self, ctx: &Context, hostgroup: u32) -> bool {
        ctx.is_mariadb(self.reading_in(hostgroup))
    }

    /// The release of the servers in a hostgroup, if they are all the same.
    pub(crate) fn release_in(&self, hostgroup: u32) -> Option<u16> {
        let reading = self.reading_in(hostgroup);
        (reading.family != Family::Either).then_some(reading.release)
    }
}

impl Pools {
    /// How the session's statement is read where it goes.
    pub(crate) fn reading_of(&self, ctx: &Context, session: &Session) -> Server {
        if let Some(lease) = session.lease() {
            return self.connections[lease].access.greeted.reads_as;
        }
        if let Some(reading) = ctx.learnt.reads_as {
            return reading;
        }
        let hostgroup = session.execution.plan.decision().hostgroup.unwrap_or(session.home_hostgroup());
        self.reading_in(hostgroup)
    }

    /// Whether the session has to do with MariaDBs. As long as no server has greeted, it is as clients are told.
    pub(crate) fn speaks_mariadb(&self, ctx: &Context, session: &Session) -> bool {
        ctx.is_mariadb(self.reading_of(ctx, session))
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
