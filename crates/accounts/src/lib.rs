//! Follows the accounts of the servers, so that whoever may log in there may log in at Weir.
//!
//! [`AccountWatch`] asks one server of each hostgroup that is followed, every [`INTERVAL`], whether its accounts have
//! changed, and reads them if so. The account that asks needs SELECT on `mysql.global_priv` (MariaDB) or `mysql.user`
//! (MySQL): there the servers keep hashes of passwords, which is all that a login at Weir needs.
//!
//! | plugin | what Weir checks | what logs in at servers afterwards |
//! | --- | --- | --- |
//! | `mysql_native_password` | the answer to a scramble | what the answer has shown |
//! | `caching_sha2_password`, `ed25519` | the password itself, over TLS or sealed with RSA; then the answer to a scramble | the password |
//! | any other | nothing: the login is refused | |

#![forbid(unsafe_code)]

mod mariadb;
mod mysql;
mod reader;
mod stored_form;
mod watch;

pub use reader::ReadError;
pub use watch::{AccountWatch, FollowedHostgroup, INTERVAL, KnownAccounts};
