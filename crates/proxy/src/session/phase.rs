//! Says where a session stands: idle, waiting, running, closing.

use weir_session::login::ClientLogin;

use crate::keys::Nanos;
use crate::shared::{KillOutcome, Victims};
use crate::snapshot::Held;

/// Where a session stands.
///
/// ```text
/// Login ──► Idle ◄────────────────────────────────────────┐
///            │ command                                     │ reply complete
///            ▼                                             │
///   (answered here) ──► Idle      Waiting ──► Running ─────┤
///            │                       ▲ lease     │         │
///            └── needs a server ─────┘           ▼         │
///                                            Settling ─────┘   (asks the server what it did not report)
/// ```
pub(crate) enum Phase {
    /// Logging in.
    Login(Box<ClientLogin>),
    /// Between commands.
    Idle,
    /// Held for as long as a rule says.
    Held,
    /// Waiting for a lease.
    Waiting(Wait),
    /// A lease is being made ready, or the command runs there. The lease is the session's and not this phase's: a pin keeps it
    /// when the command is over.
    Running,
    /// The reply is complete; the lease is asked for what the reply did not tell.
    Settling,
    /// Other workers are asked to kill sessions of theirs.
    Asking(Asking),
    /// Everything has been said; the socket closes when it is drained.
    Closing,
}

impl Phase {
    /// Waiting for a lease since this time.
    pub(crate) fn waiting(since: Nanos) -> Self {
        Self::Waiting(Wait { since, held: None, awaits_check_since: None, proven_after: 0 })
    }
}

/// A place in line.
pub(crate) struct Wait {
    pub since: Nanos,
    /// The right to wait for a server of a cluster that has none now. It goes with the place.
    pub held: Option<Held>,
    /// Since when it has waited for a server to be fresh enough.
    pub awaits_check_since: Option<Nanos>,
    /// What is known of servers from before this moment does not count: see `Circumstances`.
    pub proven_after: Nanos,
}

/// A KILL that sessions of other workers may be meant by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    /// Workers that have not answered yet.
    pub due: u32,
    /// Of whom the KILL spoke.
    pub victims: Victims,
    /// What has become of it so far.
    pub outcome: KillOutcome,
}
