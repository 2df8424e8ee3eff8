//! Has a Group Replication group move its primary itself (MySQL manual, "Changing the Primary"):
//! `group_replication_set_as_primary()`, which needs GROUP_REPLICATION_ADMIN.
//!
//! The group waits until the transactions on the old primary have ended, those of clients beside Weir and those that only
//! read, too. That can't be taken back: killing the call does not end it (seen on MySQL 9.7), so that the primary would
//! move at some later time. So it is asked only when no transaction is left, which needs PROCESS to be seen; and it gets
//! a time-out, after which it closes the connections of those that began since.

use std::time::{Duration, Instant};

use weir_client::{Connection, Error};
use weir_sql::literal;
use weir_topology::Endpoint;

use super::Plan;
use crate::account::connect;
use crate::error::SwitchoverError;
use crate::operation_runner::OperationRunner;

/// Asks for nothing: this is no member's id. The answer tells whether the account may ask at all.
const MAY_IT: &str = "SELECT group_replication_set_as_primary('none')";
/// Where it says so; the error's number (1123) is that of all faults of the function's arguments.
const PRIVILEGE: &str = "GROUP_REPLICATION_ADMIN";
/// ER_CANT_INITIALIZE_UDF: the function refuses its arguments.
const REFUSED_ARGUMENT: u16 = 1123;
/// Transactions of clients, without InnoDB's own.
const TRANSACTIONS: &str =
    "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id <> 0";
/// Needs the same privilege, and leaves the list of transactions alone.
const MAY_LOOK: &str = "SELECT 1 FROM information_schema.INNODB_METRICS LIMIT 1";
/// The list is made anew only if nobody has read it for 0.1 s (MySQL manual, "InnoDB INFORMATION_SCHEMA Transaction and
/// Locking Information").
const LIST_AGE: Duration = Duration::from_millis(120);
/// The group itself takes a few milliseconds; what it has to certify and to apply comes on top.
const GROUP_WAIT: Duration = Duration::from_secs(10);

/// Connections that have shown that they may do what is to be done.
pub(super) struct Mover {
    from: Connection,
    to: Connection,
    /// `server_uuid` of the target.
    id: String,
}

impl OperationRunner {
    /// Whether each member is a primary, so that Weir chooses among them.
    pub(super) fn has_several_primaries(&self, plan: &Plan<'_>) -> bool {
        let roles = self.context.roles.latest();
        let group = roles.group(plan.order.writer_hostgroup);
        // A secondary is listed there for being one.
        group.is_some_and(|group| !group.cannot_write.iter().any(|(server, _)| *server == plan.to))
    }

    /// Logs in, and sees whether the account has the privileges.
    pub(super) fn group_mover(&self, plan: &Plan<'_>) -> Result<Mover, SwitchoverError> {
        let mut options = self.account_at(plan.order.writer_hostgroup, &plan.to);
        options.read_timeout = Some(Duration::from_secs(timeout_s(plan)) + GROUP_WAIT);
        let user = options.user.clone();
        let mut to = connect(&options)?;
        match to.query(MAY_IT) {
            Err(Error::Server { code: REFUSED_ARGUMENT, message, .. }) if !message.contains(PRIVILEGE) => {}
            Err(Error::Server { code: REFUSED_ARGUMENT, .. }) => {
                return Err(SwitchoverError::LacksPrivilege { user, privilege: PRIVILEGE });
            }
            Err(cause) => return Err(at(&plan.to)(cause)),
            Ok(_) => return Err(SwitchoverError::AcceptsNoId(plan.to.clone())),
        }
        let mut from = connect(&self.account_at(plan.order.writer_hostgroup, &plan.from))?;
        if let Err(cause) = from.query(MAY_LOOK) {
            return Err(match cause.code() {
                Some(_) => SwitchoverError::TransactionsUnseen { user, cause },
                None => at(&plan.from)(cause),
            });
        }
        let id = to.query("SELECT @@GLOBAL.server_uuid").map_err(at(&plan.to))?;
        let id = id.first().unwrap_or_default().to_owned();
        let is_plain = id.len() == 36 && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if is_plain {
            Ok(Mover { from, to, id })
        } else {
            Err(SwitchoverError::NoServerUuid(plan.to.clone()))
        }
    }

    /// Has the group move its primary, and waits until the monitor has seen it.
    pub(super) fn move_with_group(&self, plan: &Plan<'_>, mover: &mut Mover) -> Result<(), SwitchoverError> {
        let Mover { from, to, id } = mover;
        self.wait_transactions(plan, from)?;
        plan.progress.tell(format!("the group makes {} its primary", plan.to));
        let call =
            format!("SELECT group_replication_set_as_primary({}, {})", literal::text(id), timeout_s(plan));
        let answer = to.query(&call).map(drop);
        match answer {
            Err(error @ Error::Server { .. }) => return Err(SwitchoverError::GroupRefuses(error)),
            // Nobody knows whether the group has got it: its members will tell.
            Err(error) => plan.progress.tell(format!("{}: {error}; checking the group's state", plan.to)),
            Ok(()) => {}
        }
        plan.progress.tell(format!("waiting until {} writes and has applied everything", plan.to));
        self.wait_writer(plan, &plan.to)
    }

    /// Waits until no transaction is left on the old primary, within the grace.
    fn wait_transactions(&self, plan: &Plan<'_>, from: &mut Connection) -> Result<(), SwitchoverError> {
        let until = Instant::now() + plan.grace;
        let mut told = String::new();
        loop {
            let left = from.query(TRANSACTIONS).map_err(at(&plan.from))?;
            let left = left.first().unwrap_or_default();
            if left == "0" || (plan.order.force && Instant::now() >= until) {
                return Ok(());
            }
            if Instant::now() >= until {
                let (count, from) = (left.to_owned(), plan.from.clone());
                return Err(SwitchoverError::TransactionsLeft { count, from });
            }
            if left != told {
                plan.progress.tell(format!("waiting for {left} transactions on {}", plan.from));
                told = left.to_owned();
            }
            let again = Instant::now() + LIST_AGE;
            while Instant::now() < again {
                self.look_again()?;
            }
        }
    }
}

/// How long the group waits for transactions that have begun since nobody had one, in seconds (0 to 3600).
fn timeout_s(plan: &Plan<'_>) -> u64 {
    if plan.order.force { 1 } else { plan.grace.as_secs() + 1 }
}

/// What a server has said.
fn at(server: &Endpoint) -> impl FnOnce(Error) -> SwitchoverError {
    let server = server.clone();
    move |cause| SwitchoverError::Server { server, cause }
}
