//! A world with a Galera cluster.

use weir_topology::{ProbeError, ServerState};

use crate::breach::Trial;
use crate::check::Bounds;
use crate::cluster::{Cluster, ClusterSettings, Context, Path, Payload, Write};
use crate::epoch_tables::Tables;
use crate::node::Process;
use crate::queue::{Event, MS, Reply};
use crate::stage::{CHOOSING, COMPONENTS, LOST_PARTS, NAMES, Stage, has_ghosts, has_split_brains};
use crate::watch::Watch;
use crate::weir::{self, Weir};

/// Everything.
pub(crate) struct World {
    pub(crate) context: Context,
    pub(crate) cluster: Cluster,
    pub(crate) weirs: Vec<Weir>,
    pub(crate) bounds: Bounds,
    pub(crate) trial: Trial,
    /// The node that was first written to by each epoch.
    pub(crate) first_writes: Vec<(u64, usize)>,
    /// Parts of the cluster are made Primary while the others go on.
    pub(crate) has_split_brains: bool,
    /// And those others are lost then.
    pub(crate) loses_parts: bool,
}

impl Watch for World {
    fn parts(&mut self) -> (&mut Context, &mut Vec<Weir>) {
        (&mut self.context, &mut self.weirs)
    }

    fn count(&self) -> usize {
        self.cluster.nodes.len()
    }

    fn path(&self, weir: usize, node: usize) -> Path {
        self.cluster.paths[weir][node]
    }

    fn look(&mut self, node: usize) -> Option<Result<ServerState, ProbeError>> {
        Some(self.cluster.asked(&self.context, node)?.map(ServerState::from))
    }

    fn decide(&mut self, weir: usize) {
        if let Some(moved) = self.weirs[weir].decide(&mut self.context, self.trial.breach()) {
            self.check_move(weir, &moved);
        }
        self.write_down(weir);
        if self.weirs[weir].fail_back(self.context.now) {
            self.decide(weir);
        }
    }
}

impl Stage for World {
    fn of_seed(seed: u64, trial: Trial, traced: bool) -> Self {
        let mut random = crate::random::random(seed);
        let nodes = random.pick(&[2, 3, 3, 3, 3, 5]);
        let agrees = seed % 2 == 1;
        let weirs = random.pick(if agrees { &[1, 2, 2, 3] } else { &[1, 1, 1, 2, 3] });
        let has_segments = random.percent(25);
        let segments: Vec<u8> =
            (0..nodes).map(|_| if has_segments { random.pick(&[0, 1]) } else { 0 }).collect();
        let mut weights = [1; crate::node::NODES_MAX];
        if random.percent(20) {
            weights.iter_mut().for_each(|weight| *weight = random.pick(&[1, 2, 3]));
        }
        let settings = ClusterSettings {
            suspect: if random.percent(20) {
                random.within(20 * MS..200 * MS)
            } else {
                random.within(500 * MS..3000 * MS)
            },
            weights,
            auto: random.percent(15),
            transfer: random.within(500 * MS..4000 * MS),
        };
        let mut policy = weir::Settings::any(&mut random, nodes, agrees);
        if (CHOOSING..COMPONENTS).contains(&seed) {
            policy.choose(&mut crate::random::random(!seed));
        }
        let weirs = Weir::several(weirs, &policy, &mut random);
        let mut cluster = Cluster { breach: trial.breach(), ..Cluster::new(settings, &segments) };
        if has_ghosts(seed) {
            cluster.tables = vec![Tables::with_ghosts(&mut crate::random::random(!seed))];
        }
        let mut context = Context::new(random, traced);
        context.note(|| format!("{:?}", cluster.settings));
        Self {
            bounds: Bounds::of(&policy, cluster.settings.suspect),
            cluster,
            context,
            weirs,
            trial,
            first_writes: Vec::new(),
            has_split_brains: has_split_brains(seed),
            loses_parts: (LOST_PARTS..NAMES).contains(&seed),
        }
    }

    fn happen(&mut self, event: Event) {
        let (cluster, context) = (&mut self.cluster, &mut self.context);
        match event {
            Event::Operator => self.operate(),
            Event::Regroup => cluster.regroup(context),
            Event::Install { node, life, view } => cluster.install(context, node, life, view),
            Event::Join { node, life, transfer } => cluster.join(context, node, life, transfer),
            Event::Transferred { joiner, donor } => cluster.transferred(context, joiner, donor),
            Event::Synced { node, life, transfer } => cluster.synced(context, node, life, transfer),
            Event::Written { write } => cluster.take_write(context, cluster.writes[write].node, write),
            Event::ReadDue { weir, life, node } => self.read_due(weir, life, node),
            Event::ReadAsked { weir, life, node, asked_at, deadline } => {
                self.read_asked(weir, life, node, asked_at, deadline);
            }
            Event::Read { weir, life, node, read } => self.read_done(weir, life, node, *read),
            _ => {}
        }
    }

    fn target(&self, weir: usize) -> Option<usize> {
        let sender = &self.weirs[weir];
        sender.writer.filter(|_| sender.may_write(self.context.now, self.trial.breach()))
    }

    fn life(&self, node: usize) -> u32 {
        self.cluster.nodes[node].life
    }

    fn note_write(&mut self, write: Write) -> usize {
        let (number, weir, node) = (self.cluster.writes.len(), write.weir, write.node);
        let sender = &mut self.weirs[weir];
        sender.epoch_state.in_flight.push((number, self.context.now));
        let epoch = sender.epoch();
        self.cluster.writes.push(write);
        self.check_epoch(weir, node, epoch);
        number
    }

    fn write(&self, write: usize) -> &Write {
        &self.cluster.writes[write]
    }

    fn is_clients(&mut self, write: usize, reply: Reply) -> bool {
        let Write { weir, ref payload, .. } = self.cluster.writes[write];
        let is_clients = matches!(payload, Payload::Client);
        self.weirs[weir].epoch_state.in_flight.retain(|(known, _)| *known != write);
        if !is_clients {
            self.entered(weir, write, reply == Reply::Acknowledged);
        }
        is_clients
    }
}

impl World {
    /// A person bootstraps a cluster that can't help itself.
    fn operate(&mut self) {
        let (cluster, context) = (&mut self.cluster, &mut self.context);
        let count = cluster.nodes.len();
        let is_whole = |node: usize| cluster.nodes[node].process != Process::Hung;
        if (0..count).any(|node| cluster.has_quorum(node)) {
            return;
        }
        if (0..count).all(is_whole) && !(0..count).any(|one| cluster.cut[one].iter().any(|cut| *cut)) {
            cluster.bootstrap(context);
            // What nobody has on its disk any more was never written, and the numbers of its epochs are given again.
            let epochs = &cluster.epochs;
            self.first_writes.retain(|(epoch, _)| epochs.iter().any(|known| known.number == *epoch));
        }
        context.after(3000 * MS, Event::Operator);
    }
}
