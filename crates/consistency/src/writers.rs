//! Keeps the servers busy beside the sessions that check: writers of counters and of ballast, through Weir and past it.

use std::net::SocketAddrV4;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use weir_lab::Error;
use weir_seeds::SplitMix;
use weir_testkit::Account;

use crate::client::{Client, Refused};
use crate::session::{Shared, write_sql};
use crate::stage::{BALLAST_ROWS, SCHEMA};

/// Between two writes of one writer: the readers shall have something to apply, and the sessions something to run on.
const PAUSE: Duration = Duration::from_millis(1);
/// After an error.
const PAUSE_FAILED: Duration = Duration::from_millis(50);
/// One write of so many writes ballast, too, which readers need time to apply.
const BALLAST_EVERY: u64 = 2;
/// Rows of one such write.
const BALLAST_AT_ONCE: u64 = 200;

/// What a writer has done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    /// Acknowledged writes.
    pub(crate) writes: u64,
    /// Failed ones.
    pub(crate) errors: u64,
}

/// Writes `counter` until everybody is to end, and every now and then rows that no other writer of `writers` writes.
/// `address` is asked for a server after every error.
pub(crate) fn write(
    shared: &Shared,
    account: Account,
    counter: usize,
    writers: usize,
    mut address: impl FnMut() -> Result<SocketAddrV4, Error>,
) -> Written {
    let mut random = SplitMix::new(counter as u64 + 1_000);
    let (mut written, mut client, mut value) = (Written::default(), None, 0);
    let share = BALLAST_ROWS / writers.max(1) as u64;
    let first = (counter % writers.max(1)) as u64 * share;
    while !shared.is_over.load(Ordering::Relaxed) {
        value += 1;
        let outcome = one(&mut client, account, &mut address, |client| {
            let write = write_sql(counter, value);
            let sql = match value % BALLAST_EVERY {
                0 => {
                    let from = first + random.within(0..share.saturating_sub(BALLAST_AT_ONCE).max(1));
                    let to = from + BALLAST_AT_ONCE.min(share) - 1;
                    let ballast = format!("UPDATE ballast SET n = n + 1 WHERE id BETWEEN {from} AND {to}");
                    format!("BEGIN; {write}; {ballast}; COMMIT")
                }
                _ => write,
            };
            client.run(&sql)?;
            shared.acknowledged.note(counter, value);
            Ok(())
        });
        match outcome {
            Ok(()) => written.writes += 1,
            Err(()) => {
                written.errors += 1;
                client = None;
            }
        }
        thread::sleep(if outcome.is_ok() { PAUSE } else { PAUSE_FAILED });
    }
    written
}

fn one(
    client: &mut Option<Client>,
    account: Account,
    address: &mut impl FnMut() -> Result<SocketAddrV4, Error>,
    work: impl FnOnce(&mut Client) -> Result<(), Refused>,
) -> Result<(), ()> {
    if client.is_none() {
        let address = address().map_err(drop)?;
        *client = Some(Client::open(address, account, SCHEMA).map_err(drop)?);
    }
    client.as_mut().map_or(Err(()), |client| work(client).map_err(drop))
}
