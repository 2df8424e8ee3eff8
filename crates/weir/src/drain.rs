//! Runs `weir drain` and `weir undrain`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
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
    is_json: bool,
) -> Result<ExitCode, ControlClientError> {
    let begun = client.order(&Request::Drain(server.to_string()), |step| eprintln!("{step}"))?;
    if is_json {
        eprintln!("{begun}");
    } else {
        println!("{begun}");
    }
    let ended = wait_until_drained(client, server, Duration::from_secs(timeout_s))?;
    if is_json {
        println!("{}", ended.to_json(server, timeout_s));
    } else if ended.is_problem() {
        eprintln!("weir: {}", ended.words(server, timeout_s));
    } else {
        println!("{}", ended.words(server, timeout_s));
    }
    Ok(ended.exit_status())
}

fn wait_until_drained(
    client: &ControlClient,
    server: &Endpoint,
    timeout: Duration,
) -> Result<DrainEnd, ControlClientError> {
    let until = Instant::now() + timeout;
    let mut shown = None;
    let ended = loop {
        let used = match state_of(client, server)? {
            DrainState::Drained(used) => used,
            DrainState::Undrained => break DrainEnd::Undrained,
            DrainState::Unknown => break DrainEnd::Removed,
        };
        if used.is_nobody() {
            break if used.unheard.is_empty() { DrainEnd::Free } else { DrainEnd::Unconfirmed(used) };
        }
        if Instant::now() >= until {
            break DrainEnd::InUse(used);
        }
        if shown.as_ref() != Some(&used) {
            show(&used);
            shown = Some(used);
        }
        sleep(POLL_EVERY);
    };
    end_progress(shown);
    Ok(ended)
}

/// Takes a server in again.
pub(crate) fn undrain(
    client: &ControlClient,
    server: &Endpoint,
    force: bool,
    is_json: bool,
) -> Result<ExitCode, ControlClientError> {
    let request = if force { Request::UndrainByForce } else { Request::Undrain };
    let message = client.order(&request(server.to_string()), |_| {})?;
    if is_json {
        println!("{}", json!({ "server": server.to_string(), "message": message }));
    } else {
        println!("{message}");
    }
    Ok(ExitCode::SUCCESS)
}

/// How waiting for a drained server ends.
enum DrainEnd {
    /// Nothing runs there any more.
    Free,
    /// The same, as far as the Weirs that are heard of know.
    Unconfirmed(Used),
    /// Somebody is still there when the time is over.
    InUse(Used),
    /// Somebody has undrained it meanwhile.
    Undrained,
    /// It is not configured any more.
    Removed,
}

impl DrainEnd {
    fn name(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Unconfirmed(_) => "unconfirmed",
            Self::InUse(_) => "in_use",
            Self::Undrained => "undrained",
            Self::Removed => "removed",
        }
    }

    fn is_problem(&self) -> bool {
        !matches!(self, Self::Free | Self::Unconfirmed(_))
    }

    fn exit_status(&self) -> ExitCode {
        match self {
            Self::Free => ExitCode::SUCCESS,
            Self::Unconfirmed(_) | Self::InUse(_) => ExitCode::from(STILL_RUNNING),
            Self::Undrained | Self::Removed => ExitCode::FAILURE,
        }
    }

    fn words(&self, server: &Endpoint, timeout_s: u64) -> String {
        match self {
            Self::Free => "nothing runs there any more".to_owned(),
            Self::Unconfirmed(used) => format!(
                "nothing runs there any more, except perhaps sessions of {}, which has not been heard of lately: see SHOW PROCESSLIST on the server",
                used.unheard.join(", ")
            ),
            Self::InUse(used) => format!("{used} after {timeout_s} s; it stays drained"),
            Self::Undrained => format!("{server} is not drained any more: it was undrained meanwhile"),
            Self::Removed => format!(
                "{server} is not in mysql_servers any more: see SHOW PROCESSLIST on the server for what still runs there"
            ),
        }
    }

    fn to_json(&self, server: &Endpoint, timeout_s: u64) -> serde_json::Value {
        let mut shown = json!({
            "server": server.to_string(),
            "result": self.name(),
            "message": self.words(server, timeout_s),
        });
        if let Self::Unconfirmed(used) | Self::InUse(used) = self {
            shown["used"] = json!(used.here);
            shown["used_elsewhere"] = json!(used.elsewhere);
            shown["unheard_elsewhere"] = json!(used.unheard);
        }
        shown
    }
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
