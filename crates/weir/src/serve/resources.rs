//! Loads what a configuration needs beside itself: keys, certificates, and the addresses of its servers' names. The
//! thread that offers it gets them: resolvers and disks may hang, and the main thread, which publishes roles,
//! waits for neither.

use std::path::Path;
use std::sync::Arc;

use weir_config::Config;
use weir_protocol::auth::rsa::RsaKey;

use crate::addresses::{LIMIT, Names};
use crate::rsa_key::{self, RsaKeyError};
use crate::server_tls::{Contents, ServerTlsError};

/// Keys and certificates that were loaded. What could not be had is told when it is asked for: a configuration that is in force already
/// needs none of it.
pub(super) struct Resources {
    pub rsa_key: Result<Option<Arc<RsaKey>>, RsaKeyError>,
    pub servers_tls: Result<Contents, ServerTlsError>,
}

impl Resources {
    /// Takes as long as the disk does, and [`LIMIT`] at most for the resolver. A key that has to be made is kept in
    /// `datadir`.
    pub(super) fn gather(config: &Config, datadir: &Path, names: &Names) -> Self {
        names.look_up(config, LIMIT);
        Self { rsa_key: rsa_key::rsa_key(config, datadir), servers_tls: Contents::read(config) }
    }
}
