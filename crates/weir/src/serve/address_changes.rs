//! Applies other addresses of servers' names: the main thread has everybody follow.

use weir_config::Config;
use weir_monitor::ServerAddresses;
use weir_topology::{Endpoint, Reason};

use super::Server;
use crate::addresses;

impl Server {
    /// Goes by what the names of the servers mean now. The monitor is told first: of a server at another address nothing
    /// is known when the workers hear of that address.
    pub(super) fn follow_addresses(&mut self) {
        let before = self.snapshots.addresses.clone();
        let config = self.config.clone();
        self.take_addresses(&config);
        let now = &self.snapshots.addresses;
        let at =
            |known: &ServerAddresses, endpoint: &Endpoint| known.get(endpoint).and_then(|known| known.at);
        let has_moved = now.keys().any(|endpoint| at(now, endpoint) != at(&before, endpoint));
        // Where only the reason is another why there is none, it is the monitor's to show it.
        self.apply(&config);
        if has_moved {
            self.publish();
        }
    }

    /// Takes over what is known of the addresses of a configuration's servers.
    pub(super) fn take_addresses(&mut self, config: &Config) {
        let known = self.names.known(config, &self.snapshots.addresses);
        addresses::announce(&self.log, &self.snapshots.addresses, &known);
        self.names.follow(config, &known);
        self.snapshots.addresses = known;
    }

    /// The servers of the configuration whose names can't be resolved, in words.
    pub(super) fn unresolved(&self) -> Vec<String> {
        let known = self.snapshots.addresses.iter();
        known.filter_map(|(endpoint, known)| addresses::trouble(endpoint, known)).collect()
    }

    /// The names of servers that do not answer are looked up again: they may be somewhere else.
    pub(super) fn note_silent(&self) {
        let is_silent = |reason: &Reason| {
            matches!(
                reason,
                Reason::Unreachable { .. } | Reason::TimedOut { .. } | Reason::NotObservedForLong { .. }
            )
        };
        let places = self.published.places.iter().filter(|place| is_silent(&place.reason));
        self.names.note_silent(places.map(|place| place.endpoint.clone()).collect());
    }
}
