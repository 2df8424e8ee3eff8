//! Gives Weirs the order to move the writer role, and says what one of them has left half made.

use super::AutoFailover;
use crate::cluster::WEIRS_MAX;

impl AutoFailover {
    /// A Weir is about it, or somebody has to finish what one has left.
    pub(super) fn is_being_moved(&self) -> bool {
        self.servers.iter().any(|server| server.lock.is_some()) || self.half_made().is_some()
    }

    /// What a switchover has left that is neither finished nor undone.
    pub(super) fn half_made(&self) -> Option<String> {
        let is_stopped = |node: &usize| {
            let server = &self.servers[*node];
            server.is_stopped_by_weir && server.thread.as_ref().is_some_and(|thread| !thread.started)
        };
        let count = self.servers.len();
        if let Some(node) = (0..count).find(is_stopped) {
            return Some(format!("n{node} was left stopped"));
        }
        let nobody_writes = self.servers.iter().all(|server| server.read_only);
        let closed = (0..count).find(|node| self.servers[*node].is_closed_by_weir);
        closed.filter(|_| nobody_writes).map(|node| format!("n{node} was left read_only, and nobody writes"))
    }

    /// Several Weirs may be told so at once, and each something else.
    pub(super) fn order(&mut self, node: usize) {
        let count = self.servers.len();
        let several = self.random.percent(60);
        for weir in 0..WEIRS_MAX {
            if several || self.random.percent(40) {
                self.orders[weir] = Some((node + weir) % count);
            }
        }
    }
}
