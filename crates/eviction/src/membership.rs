//! Reads a Galera node's own report of its group.

use std::collections::BTreeSet;

use weir_topology::Millis;

/// More entries of an evict list than any cluster has; what is beyond is not kept.
const EVICTED_MAX: usize = 128;
/// Characters of a UUID.
const UUID_CHARS: usize = 36;

/// A node's place in its group, as of one question (Galera manual, "Galera Status Variables"). The default is a node
/// that is in no group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// When it was asked: what happened later it can't have known.
    pub asked_at: Millis,
    /// `wsrep_gcomm_uuid`: the group's name for the node, another one after each start.
    pub uuid: String,
    /// `wsrep_connected`
    pub is_connected: bool,
    /// `wsrep_cluster_status` is Primary.
    pub is_primary: bool,
    /// `wsrep_local_state` is 4, Synced: neither a donor nor a joiner.
    pub is_synced: bool,
    /// `wsrep_cluster_state_uuid`
    pub history: String,
    /// `wsrep_cluster_conf_id`: counts the views.
    pub view: u64,
    /// `wsrep_cluster_size`: members of the view.
    pub size: u32,
    /// `wsrep_cluster_weight`: what all members of the view weigh.
    pub weight: u32,
    /// `wsrep_evs_evict_list`: UUIDs that the node lets in no more.
    pub evicted: BTreeSet<String>,
    /// What it was started with.
    pub provider: Provider,
}

/// `wsrep_provider_version` and what counts of `wsrep_provider_options`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provider {
    /// Such as `26.4.23(r1234)`; some packages leave out the first number.
    pub version: String,
    /// `gmcast.listen_addr`: where it listens for the group, such as `tcp://0.0.0.0:4567`.
    pub listen: String,
    /// `gmcast.segment`
    pub segment: u32,
    /// `socket.ssl`, or an address that says so.
    pub has_tls: bool,
    /// `pc.weight`: what the node's vote weighs.
    pub weight: u32,
    /// `pc.ignore_quorum` or `pc.ignore_sb`: the minority goes on too.
    pub ignores_quorum: bool,
    /// `evs.inactive_check_period`, in milliseconds.
    pub inactive_check_ms: Option<u64>,
    /// `evs.keepalive_period`, in milliseconds.
    pub keepalive_ms: Option<u64>,
    /// `evs.join_retrans_period`, in milliseconds.
    pub join_retrans_ms: Option<u64>,
    /// `evs.suspect_timeout`, in milliseconds.
    pub suspect_ms: Option<u64>,
    /// `evs.inactive_timeout`, in milliseconds.
    pub inactive_ms: Option<u64>,
    /// `evs.install_timeout`, in milliseconds.
    pub install_ms: Option<u64>,
}

impl Membership {
    /// Reads the rows of SHOW GLOBAL STATUS and SHOW GLOBAL VARIABLES. Names that are not known are passed over, and
    /// values that make no sense leave the field at its default.
    pub fn from_rows<'a>(asked_at: Millis, rows: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut membership = Self { asked_at, ..Self::default() };
        for (name, value) in rows {
            membership.set(&name.to_ascii_lowercase(), value.trim());
        }
        membership
    }

    fn set(&mut self, name: &str, value: &str) {
        match name {
            "wsrep_gcomm_uuid" => self.uuid = value.to_ascii_lowercase(),
            "wsrep_connected" => self.is_connected = value.eq_ignore_ascii_case("ON"),
            "wsrep_cluster_status" => self.is_primary = value.eq_ignore_ascii_case("Primary"),
            "wsrep_local_state" => self.is_synced = value == "4",
            "wsrep_cluster_state_uuid" => self.history = value.to_owned(),
            "wsrep_cluster_conf_id" => self.view = value.parse().unwrap_or(0),
            "wsrep_cluster_size" => self.size = value.parse().unwrap_or(0),
            "wsrep_cluster_weight" => self.weight = value.parse().unwrap_or(0),
            "wsrep_evs_evict_list" => self.evicted = uuids(value),
            "wsrep_provider_version" => self.provider.version = value.to_owned(),
            "wsrep_provider_options" => self.provider.read(value),
            _ => {}
        }
    }

    /// Whether both are of the same view of the same cluster.
    pub fn is_in_view_of(&self, other: &Self) -> bool {
        self.history == other.history && self.view == other.view
    }

    /// Whether the group has given the node a name that can be evicted.
    pub(crate) fn has_uuid(&self) -> bool {
        is_uuid(&self.uuid)
    }
}

impl Provider {
    /// Reads `NAME = VALUE; NAME = VALUE; ...`.
    fn read(&mut self, options: &str) {
        for (name, value) in options.split(';').filter_map(|option| option.split_once('=')) {
            let value = value.trim();
            match name.trim() {
                "gmcast.listen_addr" => {
                    self.has_tls |= value.starts_with("ssl");
                    self.listen = value.to_owned();
                }
                "gmcast.segment" => self.segment = value.parse().unwrap_or(u32::MAX),
                "socket.ssl" => self.has_tls |= is_yes(value),
                "pc.weight" => self.weight = value.parse().unwrap_or(0),
                "pc.ignore_quorum" | "pc.ignore_sb" => self.ignores_quorum |= is_yes(value),
                "evs.inactive_check_period" => self.inactive_check_ms = period_ms(value),
                "evs.keepalive_period" => self.keepalive_ms = period_ms(value),
                "evs.join_retrans_period" => self.join_retrans_ms = period_ms(value),
                "evs.suspect_timeout" => self.suspect_ms = period_ms(value),
                "evs.inactive_timeout" => self.inactive_ms = period_ms(value),
                "evs.install_timeout" => self.install_ms = period_ms(value),
                _ => {}
            }
        }
    }

    /// Where the node listens for its group: the address, none for any, and the port (4567 by default).
    pub fn group_address(&self) -> (Option<std::net::IpAddr>, u16) {
        let address = self.listen.split_once("://").map_or(self.listen.as_str(), |(_, address)| address);
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let host = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        (host.filter(|host: &std::net::IpAddr| !host.is_unspecified()), port.parse().unwrap_or(4567))
    }
}

/// The UUIDs in a list, whatever stands between them.
fn uuids(list: &str) -> BTreeSet<String> {
    let words = list.split(|c: char| !c.is_ascii_hexdigit() && c != '-');
    words.filter(|word| is_uuid(word)).take(EVICTED_MAX).map(str::to_ascii_lowercase).collect()
}

fn is_uuid(text: &str) -> bool {
    text.len() == UUID_CHARS && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

fn is_yes(value: &str) -> bool {
    ["yes", "true", "on", "1"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

/// An ISO 8601 duration of days and less, as Galera writes them (`PT0.5S`, `PT1M`, `P1D`), in milliseconds.
fn period_ms(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('P')?;
    let mut total_ms = 0.0;
    while !rest.is_empty() {
        rest = rest.strip_prefix('T').unwrap_or(rest);
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = rest.split_at(end);
        let unit_ms = match unit.get(..1)? {
            "D" => 86_400_000.0,
            "H" => 3_600_000.0,
            "M" => 60_000.0,
            "S" => 1000.0,
            _ => return None,
        };
        total_ms += number.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)? * unit_ms;
        rest = unit.get(1..)?;
    }
    // A year is more than any of the timers; the cast can't overflow below it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a year")]
    (total_ms <= 366.0 * 86_400_000.0).then_some(total_ms.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods() {
        let cases = [
            ("PT0.1S", Some(100)),
            ("PT15S", Some(15_000)),
            ("PT1M", Some(60_000)),
            ("PT1M30.5S", Some(90_500)),
            ("P1D", Some(86_400_000)),
            ("P1DT1H", Some(90_000_000)),
            ("PT", None),
            ("15", None),
            ("PTS", None),
            ("PT1", None),
            ("PT1X", None),
            ("PT-1S", None),
            ("PT1e300S", None),
            ("PT1é", None),
        ];
        for (text, expected) in cases {
            assert_eq!(period_ms(text), expected, "{text}");
        }
    }

    #[test]
    fn a_nodes_words() {
        let options = "base_host = 127.0.0.31; evs.inactive_check_period = PT0.1S; gmcast.listen_addr = \
                       tcp://0.0.0.0:4567; gmcast.segment = 2; pc.ignore_sb = false; pc.weight = 3; ";
        let seen = Membership::from_rows(
            Millis(7),
            [
                ("wsrep_gcomm_uuid", "32906320-E5CF-11f1-bdad-26ac413a1cef"),
                ("wsrep_evs_evict_list", "32b50042-e5cf-11f1-baac-9a7992d67b46, x"),
                ("wsrep_cluster_conf_id", "18446744073709551615"),
                ("wsrep_local_state", "4"),
                ("wsrep_provider_options", options),
            ],
        );
        assert_eq!(seen.uuid, "32906320-e5cf-11f1-bdad-26ac413a1cef");
        assert!(seen.has_uuid() && seen.is_synced && !seen.is_primary);
        assert_eq!(seen.evicted.into_iter().collect::<Vec<_>>(), ["32b50042-e5cf-11f1-baac-9a7992d67b46"]);
        let Provider { weight, segment, inactive_check_ms, ignores_quorum, .. } = seen.provider;
        assert_eq!((weight, segment, inactive_check_ms, ignores_quorum), (3, 2, Some(100), false));
        assert_eq!(seen.view, u64::MAX);
    }

    #[test]
    fn where_the_group_is() {
        let address =
            |listen: &str| Provider { listen: listen.to_owned(), ..Provider::default() }.group_address();
        assert_eq!(address("tcp://0.0.0.0:4567"), (None, 4567));
        assert_eq!(address("tcp://127.0.0.31:4600"), (Some("127.0.0.31".parse().unwrap()), 4600));
        assert_eq!(address("ssl://[::]:4567"), (None, 4567));
        assert_eq!(address("tcp://[::1]:4568"), (Some("::1".parse().unwrap()), 4568));
        assert_eq!(address(""), (None, 4567));
    }
}
