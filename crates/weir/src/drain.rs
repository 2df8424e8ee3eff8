//! Runs `weir drain` and `weir undrain`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_topology::Endpoint;

use crate::control::{ControlClient, ControlClientError, Request};

/// How often a drained server is asked about.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// Exit status: somebody is still there.
const STILL_RUNNING: u8 = 3;

/// Takes a server out and waits until nothing runs there.
pub(crate) fn drain(
    client: &ControlClient,
    server: &Endpoint,
    timeout_s: u64,
) -> Result<ExitCode, ControlClientError> {
    println!("{}", client.order(&Request::Drain(server.to_string()), |step| eprintln!("{step}"))?);
    let until = Instant::now() + Duration::from_secs(timeout_s);
    let mut shown = None;
    loop {
        let used = match state_of(client, server)? {
            DrainState::Drained(used) => used,
            DrainState::Undrained => {
                end_progress(shown);
                eprintln!("weir: {server} is not drained any more: it was undrained meanwhile");
                return Ok(ExitCode::FAILURE);
            }
            DrainState::Unknown => {
                end_progress(shown);
                eprintln!(
                    "weir: {server} is not in mysql_servers any more: see SHOW PROCESSLIST on the server for what still runs there"
                );
                return Ok(ExitCode::FAILURE);
            }
        };
        if used.is_nobody() {
            end_progress(shown);
            if used.unheard.is_empty() {
                println!("nothing runs there any more");
                return Ok(ExitCode::SUCCESS);
            }
            println!(
                "nothing runs there any more, except perhaps sessions of {}, which has not been heard of lately: see SHOW PROCESSLIST on the server",
                used.unheard.join(", ")
            );
            return Ok(ExitCode::from(STILL_RUNNING));
        }
        if Instant::now() >= until {
            end_progress(shown);
            eprintln!("weir: {used} after {timeout_s} s; it stays drained");
            return Ok(ExitCode::from(STILL_RUNNING));
        }
        if shown.as_ref() != Some(&used) {
            show(&used);
            shown = Some(used);
        }
        sleep(POLL_EVERY);
    }
}

/// Takes a server in again.
pub(crate) fn undrain(
    client: &ControlClient,
    server: &Endpoint,
    force: bool,
) -> Result<ExitCode, ControlClientError> {
    let request = if force { Request::UndrainByForce } else { Request::Undrain };
    println!("{}", client.order(&request(server.to_string()), |_| {})?);
    Ok(ExitCode::SUCCESS)
}

/// The users of a server that is drained.
#[derive(PartialEq)]
struct Used {
    here: u64,
    /// By the names of other Weirs; none for one that has not said it yet.
    elsewhere: BTreeMap<String, Option<u64>>,
    /// Other Weirs that are not waited for.
    unheard: Vec<String>,
}

impl Used {
    fn is_nobody(&self) -> bool {
        self.here == 0 && self.elsewhere.values().all(|used| *used == Some(0))
    }
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: u64 = self.here + self.elsewhere.values().flatten().sum::<u64>();
        let is_all_known = self.elsewhere.values().all(Option::is_some);
        let verb = match (all, is_all_known) {
            (1, true) => "session is still",
            (1, false) => "session is known to be",
            (_, true) => "sessions are still",
            (_, false) => "sessions are known to be",
        };
        write!(f, "{all} {verb} there")?;
        let others = self.elsewhere.iter().filter_map(|(weir, used)| match used {
            Some(0) => None,
            Some(used) => Some(format!("{weir}: {used}")),
            None => Some(format!("{weir} has not answered yet")),
        });
        let others: Vec<String> = others.collect();
        if others.is_empty() { Ok(()) } else { write!(f, " ({})", others.join(", ")) }
    }
}

/// The state of a server that was drained.
enum DrainState {
    Drained(Used),
    /// It is not drained any more.
    Undrained,
    /// It is not configured any more.
    Unknown,
}

fn state_of(client: &ControlClient, server: &Endpoint) -> Result<DrainState, ControlClientError> {
    let name = server.to_string();
    let row = client.status()?.servers.into_iter().find(|row| row.server == name);
    Ok(match row {
        None => DrainState::Unknown,
        Some(row) if !row.is_drained => DrainState::Undrained,
        Some(row) => DrainState::Drained(Used {
            here: row.used,
            elsewhere: row.used_elsewhere,
            unheard: row.unheard_elsewhere,
        }),
    })
}

/// One line that changes on a terminal, a line for each change elsewhere.
fn show(used: &Used) {
    let (start, end) = if stderr().is_terminal() { ("\r\x1b[K", "") } else { ("", "\n") };
    let _ = write!(stderr(), "{start}waiting: {used}{end}").and_then(|()| stderr().flush());
}

fn end_progress(shown: Option<Used>) {
    if shown.is_some() && stderr().is_terminal() {
        eprintln!();
    }
}
