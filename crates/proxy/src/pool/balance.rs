//! Picks the server of a hostgroup that takes the next statement. Pure: members and what is known of them in, an index
//! out.
//!
//! Only members of the best class are looked at: connections to them work, their weight is not 0, their pings are
//! short, they have connections left, in this order of importance. Among these, by the hostgroup's setting:
//!
//! - [`Balancing::Weighted`]: smooth weighted round robin, exact shares, evenly interleaved.
//! - [`Balancing::LeastInFlight`]: the fewest statements of this worker under way or in line, per weight; whose turn it
//!   is by weight decides between equals, so that an idle hostgroup is shared by weight.
//! - [`Balancing::Latency`]: whose turn it is by weight competes with another one drawn by weight. The other one takes
//!   the turn with a probability that grows with how much better it is: a server that takes r times as long keeps
//!   1/r² of its turns. Equal servers keep theirs, so shares follow weights; a slow one keeps a trickle by which its
//!   recovery is noticed. How long a server takes is a peak EWMA ([`Latency`]) times the statements under way.
//!
//! Everything is counted in integers: nothing here can be NaN, infinite or divided by zero.

use crate::keys::{Nanos, ServerIndex};
use crate::random::Dice;
use crate::snapshot::{Balancing, Health};

/// A weight's full share.
const SHARE: u64 = 256;
/// The smallest share in a slow start, with which it begins: caches are cold, and so are connections.
const SHARE_MIN: u64 = SHARE / 16;
/// The time in which an old measurement loses half of its weight: long enough to remember a slow server between two
/// statements, short enough to forgive it.
const DECAY_US: u64 = 10_000_000;
/// Servers that answer faster than this count as equally fast: what differs below is noise.
const LATENCY_MIN_US: u64 = 200;
/// Longer than this is no measurement any more.
const LATENCY_MAX_US: u64 = 60_000_000;
/// The longest pause that counts.
const PAUSE_MAX_US: u64 = 1_000_000_000;
/// Probabilities are parts of this.
const CERTAIN: u64 = 1 << 10;

/// A server's place in a hostgroup, in one worker.
pub(crate) struct GroupMember {
    pub server: ServerIndex,
    pub weight: u32,
    pub health: Health,
    /// When it came back after it had been away; 0 if it has not.
    pub returned_at: Nanos,
    /// How long it then takes to get back to its full share.
    pub slow_start: Nanos,
    /// Smooth weighted round robin: what it is owed.
    owed: i64,
    /// During a choice: how good it is; none if it can't take the statement.
    class: Option<Class>,
    /// During a choice: it is one of those to choose from.
    competes: bool,
}

/// Shunned, of weight 0, slow, full: false is better, and what comes first counts for more.
type Class = (bool, bool, bool, bool);

/// What is known of a member now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Statements under way on the server and in line for it.
    pub in_flight: u32,
    pub latency_us: u64,
    /// No further connection to it can be had now.
    pub is_full: bool,
}

impl GroupMember {
    pub(crate) fn new(server: ServerIndex, weight: u32, health: Health) -> Self {
        Self { server, weight, health, returned_at: 0, slow_start: 0, owed: 0, class: None, competes: false }
    }

    /// The same place under another configuration.
    pub(crate) fn go_on_from(&mut self, before: &Self) {
        self.owed = before.owed;
        self.returned_at = before.returned_at;
    }

    fn class(&self, load: Load) -> Class {
        let is_shunned = self.health == Health::Shunned;
        (is_shunned, self.weight == 0, self.health == Health::Slow, load.is_full)
    }

    /// The weight as it counts now, never 0.
    fn share(&self, now: Nanos) -> u64 {
        let since = now.saturating_sub(self.returned_at);
        let share = if self.returned_at == 0 || since >= self.slow_start {
            SHARE
        } else {
            (SHARE * since / self.slow_start).max(SHARE_MIN)
        };
        u64::from(self.weight.max(1)) * share
    }
}

/// The member that takes the next statement. `load` gives none for a member that can't take it at all.
pub(crate) fn choose(
    members: &mut [GroupMember],
    balancing: Balancing,
    now: Nanos,
    dice: &mut Dice,
    load: impl Fn(&GroupMember) -> Option<Load>,
) -> Option<usize> {
    for member in &mut *members {
        member.class = load(member).map(|load| member.class(load));
    }
    let class = members.iter().filter_map(|member| member.class).min()?;
    members.iter_mut().for_each(|member| member.competes = member.class == Some(class));
    let (turn, total) = advance(members, now)?;
    let load_of = |at: usize| members.get(at).and_then(&load).unwrap_or_default();
    let chosen = match balancing {
        Balancing::Weighted => turn,
        Balancing::LeastInFlight => least_in_flight(members, now, turn, &load_of),
        Balancing::Latency => match draw(members, now, turn, total, dice) {
            Some(other) if gives_way(load_of(turn), load_of(other), dice) => other,
            _ => turn,
        },
    };
    settle(members, chosen, total);
    Some(chosen)
}

/// A step of smooth weighted round robin: everybody is owed its share more, and it is the turn of whom most is owed.
/// Also gives the sum of the shares.
fn advance(members: &mut [GroupMember], now: Nanos) -> Option<(usize, u64)> {
    let mut turn: Option<(usize, i64)> = None;
    let mut total = 0;
    for (at, member) in members.iter_mut().enumerate().filter(|(_, member)| member.competes) {
        let share = member.share(now);
        total += share;
        member.owed += signed(share);
        if turn.is_none_or(|(_, most)| member.owed > most) {
            turn = Some((at, member.owed));
        }
    }
    turn.map(|(at, _)| (at, total))
}

/// The chosen one pays what all were given. Where others than those whose turn it is are chosen, debts stay bounded.
fn settle(members: &mut [GroupMember], chosen: usize, total: u64) {
    if let Some(member) = members.get_mut(chosen) {
        member.owed -= signed(total);
    }
    let bound = signed(total.saturating_mul(2));
    members.iter_mut().for_each(|member| member.owed = member.owed.clamp(-bound, bound));
}

fn least_in_flight(
    members: &[GroupMember],
    now: Nanos,
    turn: usize,
    load_of: &impl Fn(usize) -> Load,
) -> usize {
    let Some(mut champion) = members.get(turn) else { return turn };
    let mut best = turn;
    for (at, member) in members.iter().enumerate().filter(|(_, member)| member.competes) {
        // in_flight / share, compared without a division.
        let mine = u128::from(load_of(at).in_flight) * u128::from(champion.share(now));
        let least = u128::from(load_of(best).in_flight) * u128::from(member.share(now));
        let is_owed_more = member.owed > champion.owed;
        if mine < least || (mine == least && is_owed_more) {
            (best, champion) = (at, member);
        }
    }
    best
}

/// Another member than `not`, drawn by weight.
fn draw(members: &[GroupMember], now: Nanos, not: usize, total: u64, dice: &mut Dice) -> Option<usize> {
    let own = members.get(not).map_or(0, |member| member.share(now));
    let mut left = dice.below(total.saturating_sub(own))?;
    for (at, member) in members.iter().enumerate().filter(|(at, member)| *at != not && member.competes) {
        let share = member.share(now);
        if left < share {
            return Some(at);
        }
        left -= share;
    }
    None
}

/// Whether the one whose turn it is lets the other one go first.
fn gives_way(turn: Load, other: Load, dice: &mut Dice) -> bool {
    let cost =
        |load: Load| load.latency_us.clamp(LATENCY_MIN_US, LATENCY_MAX_US) * (u64::from(load.in_flight) + 1);
    let (turn, other) = (cost(turn), cost(other));
    if turn <= other {
        return false;
    }
    let ratio = other.saturating_mul(CERTAIN) / turn;
    let retained = ratio * ratio / CERTAIN;
    dice.below(CERTAIN).is_some_and(|thrown| thrown >= retained)
}

fn signed(share: u64) -> i64 {
    i64::try_from(share).unwrap_or(i64::MAX / 4)
}

/// How long a server has taken lately: a peak EWMA. A statement that takes longer than the mean replaces it at once;
/// one that takes less pulls it down the more, the longer the last one is ago. Without statements it fades away.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    mean_us: u64,
    at: Nanos,
}

impl Latency {
    pub(crate) fn observe(&mut self, took: Nanos, now: Nanos) {
        let took_us = (took / 1000).min(LATENCY_MAX_US);
        let pause_us = self.pause_us(now);
        self.at = now;
        self.mean_us = if took_us >= self.mean_us {
            took_us
        } else {
            (self.mean_us * DECAY_US + took_us * pause_us) / (DECAY_US + pause_us)
        };
    }

    pub(crate) fn now_us(&self, now: Nanos) -> u64 {
        self.mean_us * DECAY_US / (DECAY_US + self.pause_us(now))
    }

    fn pause_us(&self, now: Nanos) -> u64 {
        (now.saturating_sub(self.at) / 1000).min(PAUSE_MAX_US)
    }
}

#[cfg(test)]
mod tests;
