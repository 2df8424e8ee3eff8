//! Names of servers that lead elsewhere from a moment on: the machine of before is off, another one is in its place, and
//! each Weir hears of the new address at a time of its own. Nothing that was seen of the former server may count for the
//! next one.

use weir_topology::{Role, Status};

use super::{Follow, Model};
use crate::breach::Breach;
use crate::chaos::Action;
use crate::cluster::Path;
use crate::node::{NODES_MAX, endpoint};
use crate::queue::{Event, MS, Time};
use crate::watch::Watch;

/// The way to where a server was.
pub(super) const NOBODY: Path = Path { there_broken: true, back_broken: true, delay: 0 };
/// How long a Weir may take to hear of an address: as long as that may be kept.
const HEARD: std::ops::Range<Time> = 0..3000 * MS;
/// When a Weir that is stopped looks.
const LATER: Time = 500 * MS;

impl<M: Model> Follow<M> {
    pub(super) fn move_name(&mut self, node: usize) {
        self.end(node, false);
        self.servers.renew(&mut self.context, node);
        self.start(node);
        for weir in 0..self.weirs.len() {
            self.is_unaware[weir][node] = true;
            self.set_path(weir, node, self.paths[weir][node]);
            self.context.within(HEARD, Event::Act(Action::Learn(weir, node)));
        }
    }

    pub(super) fn learn_name(&mut self, weir: usize, node: usize) {
        if self.weirs[weir].runs && !self.weirs[weir].is_awake() {
            return self.context.after(LATER, Event::Act(Action::Learn(weir, node)));
        }
        if !std::mem::take(&mut self.is_unaware[weir][node]) {
            return;
        }
        self.set_path(weir, node, self.paths[weir][node]);
        if self.weirs[weir].runs {
            let forgets = self.trial.breach() != Some(Breach::ReplicasKeepMoved);
            self.weirs[weir].follow_name(&mut self.context, node, forgets);
            self.decide(weir);
        }
    }

    /// No server has a role before it has said what it is.
    pub(super) fn check_names(&mut self, weir: usize) {
        let asker = &self.weirs[weir];
        let works = |node: &usize| {
            let server = endpoint(*node);
            let mut places = asker.roles.places.iter().filter(|place| place.endpoint == server);
            asker.is_unheard[*node]
                && places.any(|place| place.status == Status::Online && place.role != Role::Offline)
        };
        if let Some(node) = (0..NODES_MAX).find(works) {
            self.fail(|| {
                format!("weir {weir} works with n{node}, where its name leads now nobody has answered yet")
            });
        }
    }
}
