//! Renews the login of connections. A connection lives longer than the rights of its account: before it is lent to a
//! session, it is logged in anew if something may have changed since, so that the server says again whom it lets in and
//! to what.

use std::rc::Rc;

use weir_protocol::error::{self, ServerError};
use weir_sql::{Assignment, Dialect, Kind, Scope};

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::pool::pools::Pools;
use crate::pool::turns::Turn;
use crate::server::connection::Principal;
use crate::session::Session;

/// Of a statement so much is looked at for words that tell of accounts or globals; of a longer one the monitor tells.
const TEXT_BYTES_READ: usize = 4 << 10;

impl Pools {
    /// A server does not let a user in, or not from where the client is: those who wait for it as this user, and from there if
    /// it is told that, hear of it. Not those who came when this login had begun already: meanwhile the account may be another.
    pub(crate) fn refuse_waiters(
        &mut self,
        ctx: &mut Context,
        server: ServerIndex,
        principal: Principal,
        began_at: Nanos,
        code: u16,
        message: &str,
    ) {
        // Numbers of which nothing is known here have the general SQLSTATE at servers, too.
        let sqlstate = weir_protocol::sqlstate::of(code, ctx.snapshot.is_mariadb).unwrap_or(*b"HY000");
        let error = ServerError { code, sqlstate };
        let pool = &mut self.servers[server];
        let endpoint = &pool.server.endpoint;
        let user = &self.identities.0[principal.identity].account.user.username;
        tracing::warn!(server = endpoint, user, error = message, "the server refuses the user");
        let refusal = Rc::new((error, format!("{endpoint} refuses user '{user}': {message}")));
        let mut meant = std::mem::take(&mut pool.waiters);
        meant.retain(|waiter| {
            let is_meant = pool.principal_awaited(waiter) == principal && waiter.since <= began_at;
            if !is_meant {
                pool.waiters.push_back(*waiter);
            }
            is_meant
        });
        self.turns.extend(meant.into_iter().map(|waiter| Turn::Refuse(waiter, refusal.clone())));
        self.supply(ctx, server);
    }
}

/// Whether a statement changes accounts, or what sessions begin with. In doubt it does; but what a session sets for itself
/// is not to cost everybody a login, whatever its variables are called.
fn changes_beginnings(kind: Kind, text: &[u8], dialect: Dialect) -> bool {
    let says = |words: &[&[u8]]| {
        let text = text.get(..TEXT_BYTES_READ).unwrap_or(text);
        words.iter().any(|word| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
    };
    match kind {
        Kind::Grant
        | Kind::Revoke
        | Kind::RenameUser
        | Kind::SetPassword
        | Kind::SetDefaultRole
        | Kind::Install => true,
        // Of tables, logs or counters it says nothing about accounts.
        Kind::Flush => says(&[b"PRIVILEGES"]),
        Kind::Create | Kind::Alter | Kind::Drop => says(&[b"USER", b"ROLE"]),
        // PASSWORD and DEFAULT ROLE may stand behind variables: then it is no list of variables.
        Kind::Set => {
            let own = |assignment: &Assignment| {
                assignment.user_variable || matches!(assignment.scope, Scope::Session | Scope::Unscoped)
            };
            says(&[b"GLOBAL", b"PERSIST", b"PASSWORD", b"ROLE"])
                && weir_sql::assignments(text, dialect).is_none_or(|list| !list.iter().all(own))
        }
        Kind::SetTransaction => says(&[b"GLOBAL"]),
        _ => false,
    }
}

/// Errors that are between a server and one user: access denied, also to a schema or for its plugin, locked, blocked
/// after failures, with a password that has expired. Others are let in.
pub(crate) fn is_about_user(code: u16) -> bool {
    matches!(code, 1044 | 1045 | 1251 | 1524 | 1698 | 1820 | 1862 | 3118 | 3955 | 4151)
}

/// Errors that are between a server and those at one address: not allowed from there, blocked after failures. A server that
/// takes no header from Weir says so with the same number (MariaDB 10.11), and serves nobody.
pub(crate) fn is_about_client(code: u16, message: &str) -> bool {
    let takes_no_header = message.contains("Proxy header is not accepted");
    (code == error::HOST_IS_BLOCKED.code || code == error::HOST_NOT_PRIVILEGED.code) && !takes_no_header
}

impl Pools {
    /// Whether accounts or defaults may have changed since the connection was logged in.
    fn is_login_outdated(&self, ctx: &Context, key: ConnectionKey) -> bool {
        let connection = &self.connections[key];
        let limit = ctx.snapshot.variables.login_max_age_ms.as_nanos() as Nanos;
        let shared = &self.servers[connection.server].server.shared;
        let is_renewed = connection.access.renewal != shared.renewal();
        let is_old = limit > 0 && ctx.now.saturating_sub(connection.access.logged_in_at) > limit;
        if !is_renewed && !is_old {
            return false;
        }
        let account = &self.identities.0[connection.identity].account;
        // Sessions of an account whose password is changed go on, as at a server: what they have was proven with the old one.
        account.host.is_none()
            || ((is_old || connection.access.renewal < shared.followed_renewal()) && !account.is_outdated())
    }
}

impl Pools {
    /// Whether a connection has to be logged in anew before a session gets it that has waited since then, if it has. A
    /// login that began while the session was waiting already is recent enough: who waits is served, however often
    /// accounts change.
    pub(crate) fn needs_login(&self, ctx: &Context, since: Option<Nanos>, key: ConnectionKey) -> bool {
        self.is_login_outdated(ctx, key)
            && since.is_none_or(|since| since > self.connections[key].access.logged_in_at)
    }

    /// A session's statement has succeeded: did it change accounts or what sessions begin with? All servers are told,
    /// as most have their accounts from the one that was written to. When another server has the change the monitor
    /// sees, as it sees those that no text shows: CALL, EXECUTE, several statements.
    ///
    /// Changes of the tables in the schema mysql do not count: they take effect with FLUSH PRIVILEGES.
    pub(crate) fn note_renewal(&self, session: &Session) {
        let kind = session.execution.plan.statement().kind;
        let is_due = changes_beginnings(kind, session.statement_text(), session.tracked.dialect);
        if is_due {
            tracing::debug!(session = session.id, "accounts or defaults may have changed");
            for pool in &self.servers {
                pool.server.shared.renew();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> bool {
        let dialect = Dialect::default();
        changes_beginnings(weir_sql::scan(text.as_bytes(), dialect).kind, text.as_bytes(), dialect)
    }

    #[test]
    fn what_changes_accounts_or_globals_is_told_from_what_is_only_called_so() {
        for text in [
            "GRANT r TO u",
            "create or replace user u",
            "DROP ROLE r",
            "ALTER USER u ACCOUNT LOCK",
            "FLUSH PRIVILEGES",
            "SET GLOBAL sql_mode = ''",
            "SET @a = 1, @@global.autocommit = 0",
            "SET PERSIST sql_mode = ''",
            "SET time_zone = '+01:00', PASSWORD = PASSWORD('x')",
            "SET time_zone = '+01:00', DEFAULT ROLE r",
            "SET GLOBAL TRANSACTION READ ONLY",
        ] {
            assert!(changes(text), "{text}");
        }
        for text in [
            "SET @role = 'admin'",
            "SET @password_hash = '', @global_id = 7, time_zone = '+01:00'",
            "SET SESSION sql_mode = @@global.sql_mode",
            "CREATE TEMPORARY TABLE user_ids (id INT)",
            "SET TRANSACTION READ ONLY",
            "UPDATE users SET role = 1",
        ] {
            assert!(!changes(text), "{text}");
        }
    }
}
