//! Reads what a session sees of itself, as labels and values that can be compared.

use std::collections::BTreeMap;

use crate::client::{Client, Heard};
use crate::names::Names;
use crate::state::State;
use crate::variables::Variables;

/// ER_UNKNOWN_ERROR: what Weir refuses with, in words.
const REFUSED: u16 = 1105;
/// No server connection in time; Weir's own numbers begin here.
const NO_CONNECTION: u16 = 9001;
const WEIRS_OWN: std::ops::Range<u16> = 9000..9100;

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) enum Looker {
    /// The session that does it.
    A,
    /// Another one of the same user, there before.
    B,
    /// One of another user, there before.
    C,
    /// One of A's user, logged in when A is gone.
    D,
}

impl Looker {
    pub(crate) fn letter(self) -> char {
        match self {
            Looker::A => 'a',
            Looker::B => 'b',
            Looker::C => 'c',
            Looker::D => 'd',
        }
    }
}

/// What one statement showed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) enum Value {
    /// Rows, OK or an error by its number, as text.
    Plain(String),
    /// Weir refuses, in words.
    Refused(String),
    /// No connection was free in time.
    Waits,
}

/// What was asked, and what was seen.
pub(crate) type Seen = Vec<(String, Value)>;

/// What is looked at.
#[derive(Debug, Clone)]
pub(crate) struct Looks {
    variables: Variables,
    /// One statement for nearly everything.
    wide: String,
    labels: Vec<String>,
}

impl Looks {
    /// At a server with these variables.
    pub(crate) fn new(variables: &Variables) -> Looks {
        let mut labels = variables.read.clone();
        labels.extend(["DATABASE()", "CURRENT_ROLE()", "CURRENT_USER()"].map(str::to_owned));
        // One column: hundreds of definitions would be most of the work.
        let own = ["DATABASE()", "CURRENT_ROLE()", "CURRENT_USER()"].map(str::to_owned);
        let read = |name: &String| match BOOLEAN_TRACKING.contains(&name.as_str()) {
            // In place of these Weir has numbers, at MariaDB they are words in an expression like this one.
            true => format!("@@session.{name} + 0"),
            false => format!("@@session.{name}"),
        };
        let all = variables.read.iter().map(read).chain(own);
        let values: Vec<String> =
            all.map(|value| format!("IFNULL(CAST({value} AS BINARY), 'NULL')")).collect();
        let wide = format!("SELECT CONCAT_WS(x'01', {})", values.join(", "));
        Looks { variables: variables.clone(), wide, labels }
    }

    /// Everything but where an INSERT lands. Ends with the first statement that had to wait or found nobody there.
    pub(crate) fn take(&self, client: &mut Client, state: &State, names: &Names) -> Seen {
        let mut seen = Seen::new();
        for sql in &state.looks {
            let heard = client.text(&names.fill(sql));
            seen.push((sql.clone(), shown(&heard)));
            if is_over(&seen) {
                return seen;
            }
        }
        match client.text(&self.wide).as_slice() {
            [Heard::Rows(rows)] => {
                let values = rows.concat().concat();
                seen.extend(
                    self.labels.iter().zip(values.split('\u{1}')).map(|(label, value)| {
                        (label.clone(), Value::Plain(self.steady(label, value, state)))
                    }),
                );
            }
            other => {
                seen.push(("the variables".to_owned(), shown(other)));
                if is_over(&seen) {
                    return seen;
                }
            }
        }
        match client.text("SHOW SESSION VARIABLES LIKE 'session\\_track%'").as_slice() {
            // In whatever character set the session reads its results.
            [Heard::Rows(rows)] => seen.extend(
                rows.iter().zip(1..).map(|(row, n)| (format!("{TRACKING} {n}"), Value::Plain(row.join("=")))),
            ),
            other => seen.push(("tracking".to_owned(), shown(other))),
        }
        seen
    }

    /// A value that every connection has its own of is only told from the one that was set.
    fn steady(&self, label: &str, value: &str, state: &State) -> String {
        if !self.variables.volatile.contains(label) {
            return value.to_owned();
        }
        let is_set = state.setting.iter().any(|s| s.variable == label && s.reads == value);
        if is_set { value.to_owned() } else { "(its own)".to_owned() }
    }
}

/// Whether there is no point in asking further.
pub(crate) fn is_over(seen: &Seen) -> bool {
    seen.last().is_some_and(|(_, value)| match value {
        Value::Waits => true,
        Value::Plain(text) => text.starts_with("closed"),
        Value::Refused(_) => false,
    })
}

/// All results of something that is done to change the session: of rows the number only, as what a sequence gives is
/// another value each time.
pub(crate) fn answered(heard: &[Heard]) -> Value {
    let counted = |one: &Heard| match one {
        Heard::Rows(rows) => Heard::Rows(vec![vec![format!("{} rows", rows.len())]]),
        other => other.clone(),
    };
    shown(&heard.iter().map(counted).collect::<Vec<_>>())
}

/// All results of one command.
pub(crate) fn shown(heard: &[Heard]) -> Value {
    let mut texts = Vec::new();
    for one in heard {
        texts.push(match one {
            Heard::Done => "ok".to_owned(),
            Heard::Rows(rows) => rows.iter().map(|row| row.join("|")).collect::<Vec<_>>().join("; "),
            Heard::Error { code: NO_CONNECTION, .. } => return Value::Waits,
            Heard::Error { code, message } if *code == REFUSED || WEIRS_OWN.contains(code) => {
                return Value::Refused(format!("{code} {message}"));
            }
            Heard::Error { code, .. } => format!("error {code}"),
            // Why is the moment's: the end of the connection, or its reset.
            Heard::Closed(_) => "closed".to_owned(),
        });
    }
    Value::Plain(texts.join(" / "))
}

const BOOLEAN_TRACKING: [&str; 2] = ["session_track_schema", "session_track_state_change"];

/// What a server shows of its tracking is Weir's, whoever asks.
const TRACKING: &str = "tracking shown";

/// What differs in a Weir that nobody has used yet from a new connection to the server: label, and value through Weir.
pub(crate) type Masks = BTreeMap<String, Value>;

/// Compares two looks of sessions that have done nothing.
pub(crate) fn masks(direct: &Seen, weir: &Seen) -> Masks {
    let pairs = direct.iter().zip(weir);
    let differing = pairs.filter(|((label, value), (other, through))| {
        label == other && (value != through || label.starts_with(TRACKING))
    });
    differing.map(|(_, (label, through))| (label.clone(), through.clone())).collect()
}
