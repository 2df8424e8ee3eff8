//! Joins a cluster's servers with their rows of `mysql_servers`, whatever the flavour.

use std::collections::BTreeMap;

use crate::health::OutOfService;
use crate::{Endpoint, Group, Hold, Intent, Millis, Place, Reason, Role, Status, Wish};

/// How long the first writer's choice waits for the first look at every server.
const FIRST_LOOK_MS: u64 = 5000;

/// A server of a cluster, with all its rows there, and its state `S` or why it does not work.
pub(crate) struct Member<'a, S> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) state: Result<&'a S, OutOfService>,
    rows: Vec<&'a Intent>,
    /// The cluster's hostgroups, the one with the best role first.
    hostgroups: &'a [u32],
}

/// The servers with rows in any of a cluster's hostgroups, by endpoint. `look` tells a server's state, unless all its
/// rows keep it out.
pub(crate) fn members<'a, S>(
    hostgroups: &'a [u32],
    intent: &'a [Intent],
    look: impl Fn(&'a Endpoint) -> Result<&'a S, OutOfService>,
) -> Vec<Member<'a, S>> {
    let mut rows: BTreeMap<&Endpoint, Vec<&Intent>> = BTreeMap::new();
    for row in intent.iter().filter(|row| hostgroups.contains(&row.hostgroup)) {
        rows.entry(&row.endpoint).or_default().push(row);
    }
    let member = |(endpoint, rows): (&'a Endpoint, Vec<&'a Intent>)| {
        let wish = rows.iter().map(|row| row.wish).min_by_key(|wish| match wish {
            Wish::Online => 0,
            Wish::OfflineSoft => 1,
            Wish::OfflineHard => 2,
        });
        let state = match wish {
            Some(wish @ Wish::OfflineSoft) => Err(OutOfService::leaving(Reason::Wished(wish))),
            Some(wish @ Wish::OfflineHard) => Err(OutOfService {
                status: Status::OfflineHard,
                ..OutOfService::leaving(Reason::Wished(wish))
            }),
            _ => look(endpoint),
        };
        Member { endpoint, state, rows, hostgroups }
    };
    rows.into_iter().map(member).collect()
}

/// The members that work, with their states.
pub(crate) fn healthy<'m, 'a, S>(
    members: &'m [Member<'a, S>],
) -> impl Iterator<Item = (&'m Member<'a, S>, &'a S)> {
    members.iter().filter_map(|member| Some((member, *member.state.as_ref().ok()?)))
}

/// Every member that does not work, in the hostgroup for those.
pub(crate) fn offline<S>(members: &[Member<'_, S>], hostgroup: u32) -> impl Iterator<Item = Place> {
    members.iter().filter_map(move |member| {
        let out = member.state.as_ref().err()?;
        let place = member.place(hostgroup, Role::Offline, out.reason.clone());
        Some(Place { status: out.status, ..place })
    })
}

/// Whether there was no writer yet, and some server has not been looked at: the first writer is the best one, not the
/// one that was seen first.
pub(crate) fn awaits_first_look<S>(before: &Group, members: &[Member<'_, S>], now: Millis) -> bool {
    let is_unseen =
        |member: &Member<'_, S>| member.state.as_ref().is_err_and(|out| out.reason == Reason::NotObserved);
    before.writer_view.is_none()
        && before.begun.is_none_or(|begun| now.since(begun) < FIRST_LOOK_MS)
        && members.iter().any(is_unseen)
}

/// The hold of a cluster that others give its writer: from when it has none to when it has one again. A writer that
/// the user has taken out is not waited for.
pub(crate) fn hold_without_writer<S>(before: &Group, members: &[Member<'_, S>], now: Millis) -> Option<Hold> {
    let is_waited_for = |writer: &&Endpoint| {
        let member = members.iter().find(|member| member.endpoint == *writer);
        member.is_some_and(|member| {
            !member.state.as_ref().is_err_and(|out| matches!(out.reason, Reason::Wished(_)))
        })
    };
    let lost: Vec<Endpoint> = before.last_writers().iter().filter(is_waited_for).cloned().collect();
    let since = before.hold.as_ref().map_or(now, |hold| hold.since);
    (!lost.is_empty()).then_some(Hold { lost, since })
}

impl<S> Member<'_, S> {
    /// Whether a person has taken it out of the cluster.
    pub(crate) fn is_taken_out(&self) -> bool {
        self.state.as_ref().is_err_and(|out| out.reason == Reason::Wished(Wish::OfflineHard))
    }

    fn row(&self, hostgroup: u32) -> Option<&Intent> {
        self.rows.iter().copied().find(|row| row.hostgroup == hostgroup)
    }

    /// Its row in a hostgroup, else that of the nearest role.
    fn nearest_row(&self, hostgroup: u32) -> Option<&Intent> {
        self.row(hostgroup).or_else(|| self.hostgroups.iter().find_map(|hostgroup| self.row(*hostgroup)))
    }

    pub(crate) fn weight_in(&self, hostgroup: u32) -> Option<u32> {
        self.row(hostgroup).map(|row| row.weight)
    }

    /// How far behind it may be to read, in seconds; 0: no limit.
    pub(crate) fn lag_max_s(&self, hostgroup: u32) -> u32 {
        self.nearest_row(hostgroup).map_or(0, |row| row.lag_max_s)
    }

    /// What the user wants of it in a hostgroup; without a row there the server belongs to the whole cluster.
    pub(crate) fn wish_in(&self, hostgroup: u32) -> Wish {
        self.row(hostgroup).map_or(Wish::Online, |row| row.wish)
    }

    /// A place with the weight and the limit of its own row there, else of the row of the nearest role.
    pub(crate) fn place(&self, hostgroup: u32, role: Role, reason: Reason) -> Place {
        let row = self.nearest_row(hostgroup);
        Place {
            hostgroup,
            endpoint: self.endpoint.clone(),
            role,
            status: Status::Online,
            weight: row.map_or(1, |row| row.weight),
            max_connections: row.map_or(1000, |row| row.max_connections),
            trouble: None,
            reason,
        }
    }

    /// The place of a healthy member that the user keeps out of a hostgroup; none if he does not.
    pub(crate) fn unwished_place(&self, hostgroup: u32, role: Role) -> Option<Place> {
        let wish = self.wish_in(hostgroup);
        let status = match wish {
            Wish::Online => return None,
            Wish::OfflineSoft => Status::OfflineSoft,
            Wish::OfflineHard => Status::OfflineHard,
        };
        Some(Place { status, ..self.place(hostgroup, role, Reason::Wished(wish)) })
    }
}
