//! `weir drain` and `weir undrain`.

use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_topology::Endpoint;

use crate::control::{Door, DoorError, Request};

/// How often a drained server is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Exit status: somebody is still there.
const STILL_RUNNING: u8 = 3;

/// Takes a server out and waits until nothing runs there.
pub(crate) fn drain(door: &Door, server: &Endpoint, timeout_s: u64) -> Result<ExitCode, DoorError> {
    println!("{}", door.order(&Request::Drain(server.to_string()), |step| eprintln!("{step}"))?);
    let until = Instant::now() + Duration::from_secs(timeout_s);
    let mut shown = None;
    loop {
        let used = used(door, server)?;
        if used == 0 {
            end_progress(shown);
            println!("nothing runs there any more");
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() >= until {
            end_progress(shown);
            eprintln!("weir: {} still there after {timeout_s} s; it stays drained", sessions(used));
            return Ok(ExitCode::from(STILL_RUNNING));
        }
        if shown != Some(used) {
            show(used);
            shown = Some(used);
        }
        sleep(LOOK_EVERY);
    }
}

/// Takes a server in again.
pub(crate) fn undrain(door: &Door, server: &Endpoint) -> Result<ExitCode, DoorError> {
    println!("{}", door.order(&Request::Undrain(server.to_string()), |_| {})?);
    Ok(ExitCode::SUCCESS)
}

/// Connections to the server that a session has.
fn used(door: &Door, server: &Endpoint) -> Result<u64, DoorError> {
    let name = server.to_string();
    let status = door.status()?;
    Ok(status.servers.iter().find(|row| row.server == name).map_or(0, |row| row.used))
}

fn sessions(count: u64) -> String {
    format!("{count} {}", if count == 1 { "session is" } else { "sessions are" })
}

/// One line that changes on a terminal, a line for each change elsewhere.
fn show(used: u64) {
    let (start, end) = if stderr().is_terminal() { ("\r\x1b[K", "") } else { ("", "\n") };
    let _ = write!(stderr(), "{start}waiting: {} still there{end}", sessions(used))
        .and_then(|()| stderr().flush());
}

fn end_progress(shown: Option<u64>) {
    if shown.is_some() && stderr().is_terminal() {
        eprintln!();
    }
}
