//! Makes lines of the topology log.

use std::collections::BTreeMap;
use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir_topology::{Change, Group, Place, Reason, Roles, Status};

/// A line: something that has changed, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    /// RFC 3339, UTC, to the millisecond.
    pub time: String,
    /// The cluster's writer hostgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostgroup: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What is so now: a role, `hold`, `switchover` and the like.
    pub change: String,
    pub reason: String,
    /// The number of the cluster's view.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<u64>,
    /// The epoch on which several Weirs agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

impl Entry {
    pub(super) fn event(cluster: Option<u32>, change: &str, reason: String) -> Self {
        Self { cluster, change: change.to_owned(), reason, ..Self::default() }
    }

    fn of_group(group: &Group, change: &str, reason: String) -> Self {
        let view = group.view.as_ref().map(|view| view.number);
        Self { view, epoch: epoch(group), ..Self::event(Some(group.writer_hostgroup), change, reason) }
    }
}

/// What is different between two decisions; `clusters` tells the writer hostgroup of each cluster's hostgroups.
pub(super) fn changes(roles: &Roles, previous: &Roles, clusters: &BTreeMap<u32, u32>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for group in &roles.groups {
        let before = previous.group(group.writer_hostgroup);
        entries.extend(group_changes(group, before));
    }
    let is_news =
        |change: &Change<'_>| !matches!(change, Change::Is(place) if place.reason == Reason::NotObserved);
    for change in roles.changes(previous).into_iter().filter(is_news) {
        let (place, word, reason) = match change {
            Change::Is(place) => (place, role_word(place), reason_of(place)),
            Change::NoLonger(place) => (place, format!("no longer {}", place.role), String::new()),
        };
        let group = clusters.get(&place.hostgroup).and_then(|cluster| roles.group(*cluster));
        let entry = match group {
            Some(group) => Entry::of_group(group, &word, reason),
            None => Entry::event(None, &word, reason),
        };
        let server = Some(place.endpoint.to_string());
        entries.push(Entry { hostgroup: Some(place.hostgroup), server, ..entry });
    }
    entries
}

/// What is different about a cluster as a whole.
fn group_changes(group: &Group, before: Option<&Group>) -> Vec<Entry> {
    let names = |servers: &[weir_topology::Endpoint]| {
        let names: Vec<String> = servers.iter().map(ToString::to_string).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let mut entries = Vec::new();
    let held = before.and_then(|before| before.hold.as_ref());
    match (&group.hold, held) {
        (Some(hold), None) => {
            let reason = format!("lost the writer {}: statements wait for the next", names(&hold.lost));
            entries.push(Entry::of_group(group, "hold", reason));
        }
        (None, Some(hold)) => {
            let reason = format!("writer: {} (lost: {})", names(&group.writers), names(&hold.lost));
            entries.push(Entry::of_group(group, "hold ends", reason));
        }
        _ => {}
    }
    if epoch(group) != before.and_then(epoch)
        && let Some(row) = group.leadership.as_ref().and_then(|leadership| leadership.row.as_ref())
    {
        let reason = format!("writer: {}, claimed by {}", row.writer, row.claimed_by);
        entries.push(Entry::of_group(group, "epoch", reason));
    }
    entries
}

fn epoch(group: &Group) -> Option<u64> {
    group.leadership.as_ref()?.row.as_ref().map(|row| row.epoch)
}

fn role_word(place: &Place) -> String {
    match place.status {
        Status::Online => place.role.to_string(),
        status => format!("{} ({})", place.role, status.word()),
    }
}

fn reason_of(place: &Place) -> String {
    let trouble = place.trouble.as_ref().map(|trouble| format!(", but {trouble}")).unwrap_or_default();
    format!("{}{trouble}", place.reason)
}

/// A moment as the log shows it.
pub(super) fn time(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    let at = at.replace_millisecond(at.millisecond()).unwrap_or(at);
    at.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_topology::{Endpoint, Hold, Millis, Role, View};

    use super::*;

    fn roles(hostgroup: u32, reason: Reason, hold: Option<Hold>) -> Roles {
        let place = Place {
            hostgroup,
            endpoint: Endpoint::new("db1", 3306),
            role: Role::Reader,
            status: Status::Shunned,
            weight: 1,
            max_connections: 1,
            reason,
            trouble: None,
        };
        let view = View {
            history: "uuid".to_owned(),
            size: 3,
            number: 7,
            writer_address: None,
            since: Millis(1),
            older_since: None,
            oldest: 7,
        };
        let group = Group { writer_hostgroup: 10, view: Some(view), hold, ..Group::default() };
        Roles { places: vec![place], groups: vec![group], ..Roles::default() }
    }

    #[test]
    fn what_a_decision_changes() {
        let clusters = BTreeMap::from([(10, 10), (11, 10)]);
        let behind = Reason::Lagging { recv_queue: 50, limit: 10 };
        let first = roles(11, behind, None);
        let entries = changes(&first, &Roles::default(), &clusters);
        assert_eq!(
            serde_json::to_string(&entries).unwrap(),
            r#"[{"time":"","cluster":10,"hostgroup":11,"server":"db1:3306","change":"reader (SHUNNED)","reason":"recv_queue 50 is more than 10","view":7}]"#
        );
        let hold = Hold { lost: vec![Endpoint::new("db2", 3306)], since: Millis(2) };
        let held = roles(12, Reason::Healthy, Some(hold));
        let words: Vec<(String, String)> =
            changes(&held, &first, &clusters).into_iter().map(|entry| (entry.change, entry.reason)).collect();
        let words: Vec<(&str, &str)> =
            words.iter().map(|(change, reason)| (change.as_str(), reason.as_str())).collect();
        assert_eq!(
            words,
            [
                ("hold", "lost the writer db2:3306: statements wait for the next"),
                ("reader (SHUNNED)", "healthy"),
                ("no longer reader", ""),
            ]
        );
        let after = changes(&roles(12, Reason::Healthy, None), &held, &clusters);
        assert_eq!(after[0].change, "hold ends");
        assert_eq!(changes(&held, &held, &clusters), []);
    }

    #[test]
    fn a_time_has_milliseconds() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        assert_eq!(time(at), "2023-11-14T22:13:20.123Z");
    }
}
