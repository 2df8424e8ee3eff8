//! Finds sockets that Weir would want for two things at a time.

use std::path::{Path, PathBuf};

use crate::model::config::Config;
use crate::model::listeners::{ListenAddress, Listener};

/// The name of the socket in `datadir` that `weir status` and its like talk to.
pub const CONTROL_SOCKET: &str = "weir.sock";

/// A setting that names a socket which is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// Where it stands.
    pub setting: Setting,
    /// What is wrong with it.
    pub reason: String,
}

/// Settings that name sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `mysql_variables.interfaces`
    Interfaces,
    /// A row of `weir_listeners`.
    Listener(usize),
    /// `admin_variables.mysql_ifaces`
    MysqlIfaces,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interfaces => f.write_str("mysql-interfaces"),
            Self::Listener(_) => f.write_str("weir_listeners.address"),
            Self::MysqlIfaces => f.write_str("admin-mysql_ifaces"),
        }
    }
}

impl Config {
    /// Addresses that are the control socket's, or that clients and admins would have to share. Those that are twice in one
    /// table are found with its rows.
    pub fn socket_collisions(&self) -> Vec<Collision> {
        let control = absolute(&self.datadir.join(CONTROL_SOCKET));
        let is_control = |address: &ListenAddress| matches!(address, ListenAddress::Unix(path) if absolute(path) == control);
        let of_clients = self.variables.interfaces.iter().map(|address| (Setting::Interfaces, address));
        let of_table = self.weir_listeners.iter().enumerate();
        let of_table = of_table.map(|(at, Listener { address, .. })| (Setting::Listener(at), address));
        let of_admins = self.admin.mysql_ifaces.iter().map(|address| (Setting::MysqlIfaces, address));
        let mut found = Vec::new();
        for (setting, address) in of_clients.chain(of_table).chain(of_admins) {
            let reason = if is_control(address) {
                format!("{address} is Weir's own control socket in datadir: take another name")
            } else if setting != Setting::MysqlIfaces && self.admin.mysql_ifaces.contains(address) {
                format!("{address} is already in admin_variables.mysql_ifaces")
            } else {
                continue;
            };
            found.push(Collision { setting, reason });
        }
        found
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
