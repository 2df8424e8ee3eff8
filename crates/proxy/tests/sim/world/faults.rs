//! Breaks and changes things in a run: connections, servers, configurations, replication.

use weir_proxy::shared::{Drain, Message};

use super::{Peer, World, groups, users, variables};
use crate::support;

impl World {
    pub(super) fn break_something(&mut self) {
        if self.random.percent(1) && self.random.percent(self.rules.vanish_percent) && !self.links.is_empty()
        {
            let at = self.random.below(self.links.len());
            if let Peer::Client(client) = self.links[at].peer {
                self.vanish(at, client);
            }
        }
        if self.random.percent(2)
            && let Some(link) = self.links.get_mut(self.random.below(self.clients.len().max(1)))
            && matches!(link.peer, Peer::Client(_))
        {
            link.is_slow = !link.is_slow;
        }
        let at = self.random.below(self.conns.len().max(1));
        if self.rules.aborts
            && self.random.percent(3)
            && let Some(Some(conn)) = self.conns.get_mut(at)
        {
            conn.abort(&mut self.cluster);
        }
        if self.rules.turns_away && self.random.percent(1) {
            let node = self.random.below(self.cluster.nodes.len());
            self.cluster.nodes[node].is_out ^= true;
        }
        if self.rules.reloads && self.random.percent(1) && self.random.percent(30) {
            self.reload();
        }
        if self.rules.drains && self.to_come == 0 && self.random.below(3000) == 0 {
            self.shared.broadcast(|| Message::Drain(Drain::Stop));
            self.rules.reloads = false;
        }
        if !self.rules.loses_connections || !self.random.percent(1) {
            return;
        }
        match self.random.below(4) {
            0 => {
                let node = self.random.below(self.cluster.nodes.len());
                self.cluster.nodes[node].is_down ^= true;
            }
            1 => {
                let at = self.random.below(self.conns.len().max(1));
                self.break_conn(at);
            }
            2 => {
                // A restart: all connections at once.
                let node = self.random.below(self.cluster.nodes.len());
                for at in 0..self.conns.len() {
                    if self.conns[at].as_ref().is_some_and(|conn| conn.node == node) {
                        self.break_conn(at);
                    }
                }
            }
            _ => {}
        }
    }

    /// A client's socket closes.
    fn vanish(&mut self, at: usize, client: usize) {
        self.links[at].is_finished = true;
        // What it sent before may be lost.
        if self.random.percent(50) {
            self.links[at].to_core.clear();
        }
        let client = &mut self.clients[client];
        client.is_cut = true;
        client.statements_left = 0;
    }

    /// A new configuration: fresh rows for both users, other weights.
    fn reload(&mut self) {
        let users = users(&self.rules);
        let mut groups = groups(&self.rules, self.servers.len());
        for (_, group) in &mut groups {
            group.members.iter_mut().for_each(|member| member.weight = 1 + self.random.below(3) as u32);
            if group.reader_hostgroup.is_none() && group.members.len() > 1 && self.random.percent(50) {
                let gone = self.random.below(group.members.len());
                group.members.remove(gone);
            }
        }
        let snapshot = support::snapshot(&users, &self.servers, groups, variables());
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Snapshot(snapshot.clone()));
        }
    }

    fn break_conn(&mut self, at: usize) {
        if let Some(Some(conn)) = self.conns.get_mut(at) {
            conn.close(&mut self.cluster);
            self.answer(at);
            if self.random.percent(50)
                && let Some(link) = self.links.iter_mut().find(|link| link.peer == Peer::Conn(at))
            {
                let kept = self.random.below(link.to_core.len() + 1);
                link.to_core.truncate(kept);
            }
        }
    }

    /// Readers apply what the writer has committed, and the monitor tells how far they are.
    pub(super) fn follow(&mut self) {
        if !self.rules.is_replicated || !self.random.percent(if self.is_healing { 50 } else { 5 }) {
            return;
        }
        let commits = self.cluster.commits;
        for node in &mut self.cluster.nodes {
            node.applied += self.random.below((commits - node.applied) as usize + 1) as u64;
        }
        for (node, server) in self.cluster.nodes.iter().zip(&self.servers) {
            if node.applied >= self.probe.1 {
                server.shared.coverage.cover_until(self.probe.0);
            }
        }
        if self.random.percent(30) {
            self.probe = (self.now, commits);
        }
    }
}
