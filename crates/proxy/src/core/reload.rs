//! New configuration and roles.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_protocol::error;

use super::model::{Nanos, Phase, ServerIndex, SessionKey};
use super::{Core, Group, GroupMember, Pool};
use crate::snapshot::{Server, Snapshot};

impl Core {
    /// Takes a snapshot over, whole. Sessions go on; what is idle and no longer wanted is closed, what is in use
    /// when it is given back.
    pub(super) fn take_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshot = snapshot.clone();
        for pool in &mut self.servers {
            pool.is_current = false;
        }
        let places: Vec<ServerIndex> = snapshot.servers.iter().map(|server| self.place_of(server)).collect();
        let mut groups: HashMap<u32, Group> = HashMap::with_capacity(snapshot.hostgroups.len());
        for (id, hostgroup) in &snapshot.hostgroups {
            let before = self.groups.get(id);
            let members = hostgroup.members.iter().map(|member| {
                let server = places[member.server];
                let current = before
                    .and_then(|group| group.members.iter().find(|known| known.server == server))
                    .map_or(0, |known| known.current);
                GroupMember { server, weight: i64::from(member.weight), current }
            });
            let group = Group {
                members: members.collect(),
                reader_hostgroup: hostgroup.reader_hostgroup,
                is_replicated: hostgroup.is_replicated,
                absent: hostgroup.absent.clone(),
            };
            groups.insert(*id, group);
        }
        self.groups = groups;
        self.default_dialect.server = snapshot.dialect.server;
        self.renew_accounts();
        self.close_unwanted();
        self.cut_gone();
        self.unpark();
        // What waits for a writer must not get a connection to one that is a reader now.
        for server in 0..self.servers.len() {
            self.reroute_waiters(server);
        }
    }

    /// The pool of a server: the one that it has, or a new one.
    fn place_of(&mut self, server: &Arc<Server>) -> ServerIndex {
        if let Some(known) = self.server_index(&server.endpoint) {
            let pool = &mut self.servers[known];
            pool.server = server.clone();
            pool.is_current = true;
            return known;
        }
        self.servers.push(Pool {
            server: server.clone(),
            is_current: true,
            idle: Vec::new(),
            open: 0,
            dialing: 0,
            handovers: 0,
            waiters: Default::default(),
            supply_at: Nanos::MAX,
            retry_at: 0,
            failures: 0,
            suspect_until: 0,
            last_error: String::new(),
            wanted_by: Default::default(),
            has_asked: false,
        });
        self.servers.len() - 1
    }

    /// Sessions go on under their users' new rows. Those whose user is gone have no account any more: they end
    /// with their next statement.
    fn renew_accounts(&mut self) {
        let mut gone = Vec::new();
        for (key, session) in &mut self.sessions {
            let Some(account) = &session.account else { continue };
            let current = self.snapshot.users.get(account.user.username.as_bytes());
            if current.is_some_and(|current| Arc::ptr_eq(current, account)) {
                continue;
            }
            account.clients.fetch_sub(1, Ordering::Relaxed);
            match current {
                Some(current) => {
                    current.clients.fetch_add(1, Ordering::Relaxed);
                    session.identity = self.identities.of(current, session.capabilities);
                    session.account = Some(current.clone());
                }
                None => {
                    session.account = None;
                    if matches!(session.phase, Phase::Waiting(_)) {
                        gone.push(key);
                    }
                }
            }
        }
        for key in gone {
            self.refuse_without_account(key);
        }
    }

    /// The session's user is no longer configured.
    pub(super) fn refuse_without_account(&mut self, key: SessionKey) {
        self.fail_session(key, error::ACCESS_DENIED, "The user of this session is no longer configured");
    }

    /// Connections to servers that are lost are of no use to anybody who waits for an answer there.
    fn cut_gone(&mut self) {
        let is_gone = |core: &Self, key: usize| {
            core.backends.get(key).is_some_and(|backend| core.servers[backend.server].server.is_gone)
        };
        let gone: Vec<usize> =
            self.backends.iter().map(|(key, _)| key).filter(|key| is_gone(self, *key)).collect();
        for key in gone {
            if is_gone(self, key) {
                self.backend_gone(key);
            }
        }
    }

    fn close_unwanted(&mut self) {
        for server in 0..self.servers.len() {
            let idle = self.servers[server].idle.clone();
            let is_wanted = self.servers[server].is_current;
            for key in idle {
                if !is_wanted || self.is_stale(key) {
                    self.retire(key);
                }
            }
        }
    }
}
