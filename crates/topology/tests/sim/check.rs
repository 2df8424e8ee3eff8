//! The rules that every world must keep, looked at after every step.

use weir_topology::{EpochPolicy, Failback, Leadership, LocalState, Status, drift_ms};

use crate::breach::Breach;
use crate::cluster::Epoch;
use crate::node::{endpoint, node_of};
use crate::queue::{MS, Time};
use crate::watch::Watch;
use crate::weir::{FAILBACK_PAUSE, Move, READERS, Settings, TICK, Weir};
use crate::world::World;

/// A node that was silent for long is believed after it has answered for so long.
const BACK: Time = 1100 * MS;

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Until a Weir has noticed what a node says, or that it says nothing.
    pub(crate) detect: Time,
    /// How old an answer may be by which a node becomes writer.
    pub(crate) fresh: Time,
    /// Until there is a writer after the last disturbance, and all is as it stays.
    pub(crate) writer: Time,
}

/// A world with rules.
pub(crate) trait Checked: Watch {
    /// What must hold after every step.
    fn check(&mut self);

    /// What must hold when a Weir has told a client that its write is kept.
    fn check_acknowledged(&mut self, write: usize);
}

impl Bounds {
    /// What follows from the settings.
    pub(crate) fn of(settings: &Settings, suspect: Time) -> Self {
        let probe = settings.timeout + settings.interval * 11 / 10 + 10 * MS;
        let detect = settings.timeouts_max() * probe + TICK + 700 * MS;
        let unconfirmed = settings.unconfirmed_ms() * MS;
        let fresh = probe + TICK + 10 * MS;
        // Where several agree: a claim, and every lease by the epoch before.
        let lease =
            |epoch: &EpochPolicy| epoch.lone_lease_ms.max(epoch.peer_timeout_ms) + epoch.lease_ms + 2500;
        let agree = settings.policy.epoch.as_ref().map_or(0, lease) * MS;
        let failback = match settings.failback() {
            (Failback::Never, _) => 0,
            (Failback::Immediate, uptime) => uptime,
            // The first tries may be given up, while somebody's write is not answered.
            (Failback::Drained, uptime) => uptime + 3 * FAILBACK_PAUSE,
        };
        Self { detect, fresh, writer: detect.max(suspect) + unconfirmed + agree + failback + 4800 * MS }
    }

    /// The same where the servers themselves show what happened only after a time.
    pub(crate) fn later(self, notice: Time) -> Self {
        Self { detect: self.detect + notice, writer: self.writer + notice, ..self }
    }
}

impl Checked for World {
    fn check(&mut self) {
        self.note_truth();
        for weir in 0..self.weirs.len() {
            if self.weirs[weir].is_awake() {
                self.check_quorum(weir);
                self.check_branches(weir);
                self.check_reader(weir);
                let quiet_since = self.context.disturbed_at.max(self.weirs[weir].awake_since);
                if self.context.now > quiet_since + self.bounds.writer {
                    self.check_quiet(weir, quiet_since);
                }
            }
        }
    }

    /// An acknowledged write must be in the history that lasts.
    fn check_acknowledged(&mut self, write: usize) {
        let sent = self.cluster.writes[write].clone();
        let weir = sent.weir;
        // What was sent before it could notice is the server's.
        let begun = self.weirs[weir].awake_since.max(self.cluster.nodes[sent.node].joins_at);
        let is_awake = sent.sent_at > begun + self.bounds.detect;
        match sent.committed {
            Some((0, position)) => {
                let kept = self.cluster.logs[0].get(position - 1) == Some(&write);
                if !kept {
                    self.fail(|| format!("the acknowledged write {write} of weir {weir} is lost"));
                }
                (self.weirs[weir].knew_history, self.weirs[weir].follows_branch) = (true, false);
            }
            Some((history, _)) if self.weirs[weir].knew_history && is_awake => {
                self.fail(|| {
                    let node = endpoint(sent.node);
                    format!("weir {weir} writes on {node} into history {history}, which is not the cluster's")
                });
            }
            _ => {}
        }
    }
}

impl World {
    fn note_truth(&mut self) {
        let now = self.context.now;
        for index in 0..self.cluster.nodes.len() {
            let (quorum, claim) = (self.cluster.has_quorum(index), self.cluster.claims_quorum(index));
            let node = &mut self.cluster.nodes[index];
            let since = |lost: Option<Time>, has: bool| if has { None } else { Some(lost.unwrap_or(now)) };
            node.quorum_lost_at = since(node.quorum_lost_at, quorum || node.history != 0);
            let is_current = matches!(node.state, LocalState::Synced | LocalState::Donor);
            node.stale_since = since(node.stale_since, is_current);
            node.claim_lost_at = since(node.claim_lost_at, claim);
            let writable = quorum && node.wants_writes();
            node.writable_since = since(node.writable_since, !writable);
            if writable && let Some(begun) = node.unwritable_since {
                node.lapse = (begun, now);
            }
            node.unwritable_since = since(node.unwritable_since, writable);
            let reads = quorum && node.wants_reads();
            let answers = node.is_open && !node.busy;
            let is_branch = node.is_branch && claim;
            for (weir, asker) in self.weirs.iter_mut().enumerate() {
                let path = self.cluster.paths[weir][index];
                let is_clear = path.works() && path.delay == 0;
                let good = &mut asker.reach[index];
                good.clear_since = since(good.clear_since, !is_clear);
                good.reads_since = since(good.reads_since, !(is_clear && reads));
                good.quorum_since = since(good.quorum_since, !(is_clear && quorum && answers));
                good.branch_since = since(good.branch_since, !(is_clear && is_branch && answers));
            }
        }
        self.note_branches();
    }

    /// Rule 1: no writes to a node without quorum for longer than it takes to notice.
    fn check_quorum(&mut self, weir: usize) {
        let asker = &self.weirs[weir];
        let noticed = |lost: Time| self.context.now > lost.max(asker.awake_since) + self.bounds.detect;
        let wrong = asker.writers.iter().find(|writer| {
            let node = &self.cluster.nodes[**writer];
            (node.history == 0 || asker.knew_history) && node.quorum_lost_at.is_some_and(noticed)
        });
        let (count, most) = (asker.writers.len(), asker.settings.writers_max());
        if let Some(writer) = wrong.copied() {
            let ago = (self.context.now - self.cluster.nodes[writer].quorum_lost_at.unwrap_or(0)) / MS;
            self.fail(|| format!("weir {weir} sends writes to n{writer}, without quorum for {ago} ms"));
        } else if count > most {
            self.fail(|| format!("weir {weir} has {count} writers, {most} are wanted"));
        }
    }

    /// Rule 3: somebody reads while a healthy node lives.
    fn check_reader(&mut self, weir: usize) {
        let asker = &self.weirs[weir];
        if asker.has_reader() || !asker.believes_in_cluster() || self.is_torn(weir) {
            return;
        }
        let (now, detect) = (self.context.now, self.bounds.detect);
        // Views that count from 1 again are believed after a moment.
        let recount = if self.cluster.recounted_at > 0 { 3000 * MS } else { 0 };
        let since = asker.awake_since.max(asker.wished_at).max(self.cluster.recounted_at);
        let reads = |node: &usize| {
            let since = asker.reach[*node].reads_since.map(|good| good.max(since) + recount);
            asker.wants(*node) && since.is_some_and(|since| now > since + detect + BACK)
        };
        if let Some(node) = (0..self.cluster.nodes.len()).find(reads) {
            self.fail(|| format!("weir {weir} has no reader although n{node} could read all the time"));
        }
    }

    /// Once the world is quiet everything is as it should be, and stays so.
    fn check_quiet(&mut self, weir: usize, quiet_since: Time) {
        let (now, bound) = (self.context.now, self.bounds.writer);
        let asker = &self.weirs[weir];
        // Nothing to look at again while nothing happens but probes.
        if now < asker.checked_at + 50 * MS && asker.checked_at > asker.changed_at {
            return;
        }
        self.weirs[weir].checked_at = now;
        self.context.tally.quiet_checks += 1;
        let asker = &self.weirs[weir];
        let is_steady = self.cluster.nodes.iter().all(|node| node.apply_us < MS);
        if is_steady && asker.changed_at > quiet_since + bound {
            return self.fail(|| format!("weir {weir} changes roles although nothing has happened for long"));
        }
        let can_write = |node: usize| {
            let seen =
                self.cluster.nodes[node].writable_since.is_some() && self.cluster.paths[weir][node].works();
            seen && asker.wants(node)
        };
        let possible = (0..self.cluster.nodes.len()).find(|node| can_write(*node));
        match (asker.writer, possible) {
            // It may be that another reaches the writer, or that one that reaches nobody may still be writing.
            (None, Some(_)) if asker.settings.policy.epoch.is_some() && self.is_somebody_cut_off() => {}
            (None, Some(_)) if self.is_torn(weir) => {}
            (None, Some(possible)) => {
                return self.fail(|| format!("weir {weir} has no writer although n{possible} could write"));
            }
            (Some(writer), Some(possible)) if !can_write(writer) => {
                let known = asker.knew_history || self.cluster.nodes[writer].history == 0;
                if known {
                    return self.fail(|| {
                        format!("weir {weir} keeps the writer n{writer}, which can't write, although n{possible} could")
                    });
                }
            }
            (Some(writer), Some(_)) => {
                let silence = now - asker.acknowledged_at.max(quiet_since + bound);
                if silence > 3 * asker.settings.client_pause + 3000 * MS {
                    return self.fail(|| format!("weir {weir} gets no write through on n{writer}"));
                }
            }
            _ => {}
        }
        self.check_agreement();
        self.check_quiet_writers(weir, is_steady);
        self.check_quiet_readers(weir);
    }

    /// Rules 2 and 7: as many writers as are wanted, and the heaviest where they take their role back.
    fn check_quiet_writers(&mut self, weir: usize, is_steady: bool) {
        let asker = &self.weirs[weir];
        if !is_steady || asker.writer.is_none() || self.is_somebody_cut_off() || !asker.believes_in_cluster()
        {
            return;
        }
        let able: Vec<usize> = (0..self.cluster.nodes.len())
            .filter(|node| self.cluster.nodes[*node].writable_since.is_some() && asker.wants(*node))
            .collect();
        let most = asker.settings.writers_max().min(able.len());
        let weight = |node: &usize| asker.settings.weight(*node);
        let outweighs = |node: &&usize| asker.writers.iter().all(|writer| weight(node) > weight(writer));
        let heavier = able.iter().find(outweighs).copied();
        let (count, writers) = (asker.writers.len(), asker.writers.clone());
        if count < most {
            self.fail(|| format!("weir {weir} has {count} writers, although {most} could write"));
        } else if let Some(heavier) = heavier
            && asker.settings.failback().0 != Failback::Never
        {
            self.fail(|| format!("weir {weir} does not give the role back to n{heavier}: {writers:?}"));
        }
    }

    /// Whether a node takes the role of a lighter one, after it has been able to for long enough.
    fn returns_by_weight(&self, weir: usize, from: usize, to: usize) -> bool {
        let asker = &self.weirs[weir];
        let (failback, uptime) = asker.settings.failback();
        let is_heavier =
            asker.writers.iter().any(|writer| asker.settings.weight(*writer) > asker.settings.weight(from));
        let (begun, ended) = self.cluster.nodes[to].lapse;
        // A lapse that every Weir must have noticed counts.
        let awake = self.weirs.iter().map(|weir| weir.awake_since).max().unwrap_or(0);
        let is_noticed = ended > begun + self.bounds.detect && begun > awake + self.bounds.detect;
        let is_too_early = is_noticed && self.context.now < ended + uptime - uptime / 1000;
        failback != Failback::Never && is_heavier && !is_too_early
    }

    /// Whether a Weir does not reach some node that works.
    fn is_somebody_cut_off(&self) -> bool {
        let is_cut = |weir: usize, node: usize| {
            let path = self.cluster.paths[weir][node];
            self.cluster.has_quorum(node) && (!path.works() || path.delay > 0)
        };
        let misses = |weir: usize| (0..self.cluster.nodes.len()).any(|node| is_cut(weir, node));
        (0..self.weirs.len()).any(|weir| !self.weirs[weir].is_awake() || misses(weir))
    }

    /// Rule 9: several Weirs with an epoch have one writer.
    fn check_agreement(&mut self) {
        let agrees =
            |weir: &&Weir| weir.settings.policy.epoch.is_some() && weir.is_awake() && weir.knew_history;
        let writers: Vec<usize> = self.weirs.iter().filter(agrees).filter_map(|weir| weir.writer).collect();
        if writers.windows(2).any(|pair| pair[0] != pair[1]) {
            self.fail(|| format!("the Weirs write on different nodes: {writers:?}"));
        }
    }

    /// Rule 9: no write under an old epoch. `epoch` is that of a write which is sent now.
    pub(crate) fn check_epoch(&mut self, weir: usize, node: usize, epoch: Option<u64>) {
        let (Some(epoch), Some(policy)) = (epoch, self.weirs[weir].settings.policy.epoch.clone()) else {
            return;
        };
        let now = self.context.now;
        // A Weir that has seen nothing but a node that was set up apart can't know better, and when that is started anew it
        // takes a moment until it knows; such a node takes no write.
        let was_apart = self.weirs[weir].follows_branch && !self.cluster.claims_quorum(node);
        let is_apart = self.cluster.nodes[node].history != 0 || was_apart;
        if is_apart || !self.weirs[weir].believes_in_cluster() {
            return;
        }
        let lease_ms = policy.lone_lease_ms.max(policy.lease_ms);
        let later = self.cluster.epochs.iter().find(|later| later.number > epoch);
        if let Some(Epoch { number: later, begun, .. }) = later.copied()
            && now > begun + (lease_ms + drift_ms(lease_ms)) * MS
        {
            let ago = (now - begun) / MS;
            return self
                .fail(|| format!("weir {weir} writes by epoch {epoch}, {ago} ms after epoch {later} began"));
        }
        // The cluster may still have the former writer of an epoch that was closed when it was claimed.
        let used = self.first_writes.iter().find(|(later, first)| *later > epoch && *first != node);
        let is_closed =
            |later: u64| self.cluster.epochs.iter().any(|known| known.number == later && known.is_closed);
        if let Some((later, first)) = used.copied()
            && is_closed(later)
        {
            return self.fail(|| {
                format!("weir {weir} writes on n{node} by epoch {epoch}, after n{first} was written to by epoch {later}")
            });
        }
        // Until then nobody else may still have a lease by an earlier one, but one whose writer left in order.
        let is_left_in_order = |old: u64| {
            let mut later =
                self.cluster.epochs.iter().filter(|known| (old + 1..=epoch).contains(&known.number));
            later.any(|known| !known.is_closed)
        };
        let may_still = |other: &&Weir| {
            other.index != weir
                && other.runs
                && other.epoch().is_some_and(|old| old < epoch && !is_left_in_order(old))
                && other.writer.is_some_and(|writer| writer != node && self.cluster.has_quorum(writer))
                && other.may_write(now, None)
        };
        if is_closed(epoch)
            && let Some(other) = self.weirs.iter().find(may_still).map(|other| other.index)
        {
            return self.fail(|| {
                format!("weir {weir} writes by epoch {epoch}, although weir {other} may still write")
            });
        }
        if !self.first_writes.iter().any(|(known, _)| *known == epoch) {
            self.first_writes.push((epoch, node));
        }
    }

    fn check_quiet_readers(&mut self, weir: usize) {
        let asker = &self.weirs[weir];
        let readers: Vec<usize> = asker
            .roles
            .hostgroup(READERS)
            .iter()
            .filter(|place| place.status == Status::Online)
            .map(|place| node_of(&place.endpoint))
            .collect();
        let knows = |node: usize| asker.knew_history || self.cluster.nodes[node].history == 0;
        let wrong = readers.iter().find(|node| !self.cluster.claims_quorum(**node) && knows(**node)).copied();
        let limit =
            asker.settings.policy.galera.first().map_or(0, |galera| galera.max_transactions_behind) / 2;
        let idle = (0..self.cluster.nodes.len()).find(|index| {
            let node = &self.cluster.nodes[*index];
            let is_quick = node.apply_us < MS
                && node.paused_permille < 500
                && (node.backlog == 0 || node.backlog <= limit);
            let is_fit =
                node.state == LocalState::Synced && node.wants_writes() && self.cluster.has_quorum(*index);
            let is_wanted = asker.wants(*index) && !asker.writers.contains(index) && asker.writer.is_some();
            let is_ours = asker.writer.is_some_and(|writer| self.cluster.nodes[writer].history == 0);
            is_quick
                && is_fit
                && is_wanted
                && is_ours
                && self.cluster.paths[weir][*index].works()
                && !readers.contains(index)
        });
        if let Some(wrong) = wrong {
            self.fail(|| format!("weir {weir} reads from n{wrong}, which is in no Primary component"));
        } else if let Some(idle) = idle {
            self.fail(|| format!("weir {weir} does not read from n{idle}, which is healthy"));
        }
    }

    /// Rules 6 and 7: what a change of the writer needs.
    pub(crate) fn check_move(&mut self, weir: usize, moved: &Move) {
        let (now, to) = (self.context.now, moved.to);
        let asker = &self.weirs[weir];
        // The role may have been elsewhere meanwhile, where this Weir could not go.
        let is_named =
            |leadership: &&Leadership| leadership.row.as_ref().is_some_and(|row| row.writer == endpoint(to));
        let former = asker
            .leadership()
            .filter(is_named)
            .and_then(|leadership| leadership.former.as_ref())
            .map(node_of);
        let from = former.filter(|former| *former != to).unwrap_or(moved.from);
        let before = |moment: Time, bound: Time| moment + bound < now;
        let planned_at =
            self.weirs.iter().map(|weir| weir.switched_at.max(weir.wished_at)).max().unwrap_or(0);
        let agrees = asker.settings.policy.epoch.is_some();
        let planned_for = if agrees { self.bounds.writer } else { self.bounds.detect };
        let is_planned = planned_at > 0 && !before(planned_at, planned_for);
        let recounted = self.cluster.recounted_at;
        let is_recounted = recounted == 0 || before(recounted, self.bounds.detect + 3000 * MS);
        let able_since =
            self.cluster.nodes[from].writable_since.filter(|_| is_recounted && asker.wants(from));
        // Who follows the row follows what was known when that was asked for.
        let row = asker.leadership().filter(is_named).and_then(|leadership| leadership.row.as_ref());
        let epoch = row.and_then(|row| self.cluster.epochs.iter().find(|known| known.number == row.epoch));
        let chosen_at = epoch.map_or(now, |epoch| epoch.proposed_at);
        let was_able = able_since.is_some_and(|since| since + self.bounds.detect < chosen_at);
        let was_awake = before(asker.awake_since, self.bounds.detect);
        let waited = moved.held_ms.is_some_and(|held| held >= asker.settings.unconfirmed_ms());
        // With an epoch it is enough that one Weir sees the writer.
        let for_long = self.bounds.detect + if agrees { 2000 * MS } else { 0 };
        let sees = |weir: &Weir| {
            weir.is_awake()
                && before(weir.awake_since, for_long)
                && weir.reach[from].clear_since.is_some_and(|since| before(since, for_long))
                && before(weir.probes[from].failed_at, for_long)
        };
        // Broken on purpose together with it.
        let agrees_silently = self.trial.breach() == Some(Breach::AwaitsNoLease);
        let was_in_sight = if agrees_silently {
            false
        } else if agrees {
            self.weirs.iter().any(sees)
        } else {
            sees(asker)
        };
        let claim_lost = self.cluster.nodes[to].claim_lost_at;
        if let Some(since) = self.cluster.nodes[to].stale_since
            && was_awake
            && moved.is_new
            && before(since, self.bounds.fresh)
        {
            let state = self.cluster.nodes[to].state.name();
            return self.fail(|| format!("weir {weir} makes n{to} the writer, which is {state}"));
        }
        let returns = self.returns_by_weight(weir, from, to);
        let is_mistaken = self.mistakes_branch(weir, to);
        if was_able && was_awake && !is_planned && was_in_sight && !returns && !is_mistaken {
            return self.fail(|| format!("weir {weir} moves the writer from n{from} to n{to} without need"));
        }
        // Where nodes don't tell their addresses, any new view must do.
        let may_go = returns || agrees || self.cluster.settings.auto || asker.settings.writers_max() > 1;
        if was_able && was_awake && !is_planned && !waited && !may_go {
            return self
                .fail(|| format!("weir {weir} moves the writer from n{from}, still a member, to n{to}"));
        }
        // Whom the row names was looked at when it was claimed.
        let heard = if row.is_some() { self.bounds.detect } else { self.bounds.fresh };
        if let Some(lost) = claim_lost
            && was_awake
            && moved.is_new
            && before(lost, heard)
        {
            let ago = (now - lost) / MS;
            return self.fail(|| format!("weir {weir} makes n{to} the writer, silent for {ago} ms"));
        }
        // The role goes and comes back.
        let each = if asker.settings.failback().0 == Failback::Never { 1 } else { 2 };
        let most = each * self.context.tally.disturbances + 1;
        if self.weirs[weir].changes > most {
            self.fail(|| format!("weir {weir} has moved the writer more often than anything happened"));
        }
    }
}
