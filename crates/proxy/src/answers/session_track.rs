//! Answers `SET session_track_...` for a client. The statement never reaches a server, where tracking is Weir's. Nor does a
//! SET of Weir's own variables (`weir_consistency`, `weir_token`, `weir_replay`, `weir_commit_outcome`), which servers do not
//! know.
//!
//! ```text
//! parts ──► Values ──► Names ──► the rest of the list ──► OK
//!           expressions that only the server can evaluate, and names of variables that it has to know:
//!           questions of Weir's on the session's connection, each only where it is needed
//! ```

use std::collections::HashSet;

use weir_protocol::capability::Capabilities;
use weir_protocol::charset::Encoding;
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::resultset::{ColumnDefinition, ColumnType, TextRow};
use weir_session::pin::Pins;
use weir_session::track::{BadTrackValue, Given, SYSTEM_VARIABLES, TrackPreferences};
use weir_sql::{
    Assignment, COMMIT_OUTCOME, Dialect, Effects, Family, Kind, OWN_VARIABLES, REPLAY, Scope, Statement,
    literal,
};

use crate::answers::own_replies::Outcome;
use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::tracking::{Before, Item, OwnSettings, Tracking};

/// Why one can't be made virtual, in a query and at a PREPARE.
pub(crate) const PLAIN_ONLY: &str =
    "session_track and Weir's own variables can be set by a plain SET statement only, which may be prepared";

/// Names that a server is asked about at once, and that a worker remembers.
pub(crate) const NAMES_MAX: usize = 1024;

/// The assignments of a text that can be taken apart.
pub(crate) fn plain_set(text: &[u8], statement: &Statement, dialect: Dialect) -> Option<Vec<Assignment>> {
    let is_plain =
        statement.kind == Kind::Set && !statement.multi && !statement.effects.contains(Effects::UNKNOWN);
    weir_sql::assignments(text, dialect).filter(|_| is_plain)
}

/// What a server is to prepare in the place of a SET of variables that only Weir has, for its parameters: the statement is
/// never executed there. None if it knows all of them.
pub(crate) fn preparable_set(text: &[u8], parts: &[Assignment], dialect: Dialect) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() + 32);
    let mut at = 0;
    for part in parts.iter().filter(|part| !part.user_variable && is_weirs(&part.name)) {
        let value = &text[part.value_range.clone()];
        let value = if Given::of_literal(value, dialect).is_some() { b"NULL" } else { value };
        out.extend_from_slice(&text[at..part.range.start]);
        // No client's name of a variable: the text stands for this one's meaning alone.
        out.extend_from_slice(format!("@`{} of Weir` = ", part.name).as_bytes());
        out.extend_from_slice(value);
        at = part.range.end;
    }
    out.extend_from_slice(&text[at..]);
    (at > 0).then_some(out)
}

impl Tracking {
    /// Takes the values of expressions from the only row of an answer to a connection with these capabilities, with text
    /// in this encoding.
    pub(crate) fn take_values(
        &mut self,
        answer: &[u8],
        capabilities: Capabilities,
        encoding: Option<Encoding>,
    ) {
        let packets: Vec<&[u8]> = packets(answer).collect();
        let (columns, rows) = packets.split_at(self.columns.min(packets.len()));
        let mut values = rows.first().map(|row| TextRow::new(row));
        let open = self.items.iter_mut().filter(|item| item.value.is_none());
        for (item, column) in open.zip(columns) {
            let column_type = ColumnDefinition::parse(column, capabilities).map(|column| column.column_type);
            let value = values.as_mut().and_then(Iterator::next).and_then(Result::ok);
            item.value = match (column_type, value) {
                (Ok(column_type), Some(value)) => Some(given(column_type, value, encoding)),
                _ => Some(Given::Other),
            };
        }
        // Where the answer was too long for any value that fits.
        for item in self.items.iter_mut().filter(|item| item.value.is_none()) {
            item.value = Some(Given::Other);
        }
    }
}

fn given(column_type: ColumnType, value: Option<&[u8]>, encoding: Option<Encoding>) -> Given {
    let Some(value) = value else { return Given::Null };
    match column_type {
        ColumnType::TINY
        | ColumnType::SHORT
        | ColumnType::INT24
        | ColumnType::LONG
        | ColumnType::LONGLONG => {
            // MySQL (9.7) writes numbers in ASCII under every character set, MariaDB (10.11) does not: `-` is another
            // word in its `filename`.
            let digits = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
            let number = digits.or_else(|| encoding?.decode(value)?.parse().ok());
            number.map_or(Given::Other, Given::Integer)
        }
        ColumnType::VARCHAR
        | ColumnType::VAR_STRING
        | ColumnType::STRING
        | ColumnType::TINY_BLOB
        | ColumnType::BLOB
        | ColumnType::MEDIUM_BLOB
        | ColumnType::LONG_BLOB => {
            // What can't be read is no name of a variable.
            let text = encoding.and_then(|encoding| encoding.decode(value));
            Given::Text(text.unwrap_or_else(|| String::from_utf8_lossy(value).into_owned()))
        }
        _ => Given::Other,
    }
}

/// Assigns one of the values, all of which are known by then. Fails as a server would.
fn assign(
    ctx: &Context,
    session: &Session,
    preferences: &mut TrackPreferences,
    own: &mut OwnSettings,
    item: &Item,
) -> Result<(), (ServerError, String)> {
    let value = item.value.as_ref().unwrap_or(&Given::Other);
    if is_weirs(&item.name) {
        return session.assign_own(ctx, own, &item.name, value);
    }
    let is_variable = |name: &str| ctx.learnt.variable_names.contains(name);
    preferences.assign(&item.name, value, is_variable).map_err(|error| {
        let code = match error {
            BadTrackValue::WrongValue { .. } => error::WRONG_VALUE_FOR_VAR,
            BadTrackValue::WrongType(_) => error::WRONG_TYPE_FOR_VAR,
            BadTrackValue::UnknownVariable(_) => error::UNKNOWN_SYSTEM_VARIABLE,
            BadTrackValue::Duplicate(_) => DUPLICATE_VARIABLE,
        };
        (code, error.to_string())
    })
}

/// Whether only Weir has a variable of this name, which is in small letters.
fn is_weirs(name: &str) -> bool {
    OWN_VARIABLES.contains(&name)
}

/// ER_LOCAL_VARIABLE.
const LOCAL_VARIABLE: ServerError = ServerError { code: 1228, sqlstate: *b"HY000" };

/// Why SET GLOBAL and SET PERSIST can't have such a variable.
fn not_global(name: &str) -> String {
    let column = match name {
        REPLAY => "transaction_replay",
        COMMIT_OUTCOME => "commit_outcome",
        _ => "consistency",
    };
    format!(
        "Variable '{name}' is a SESSION variable and can't be used with SET GLOBAL: what holds for all sessions is in \
         weir_hostgroups.{column}, on the admin port"
    )
}

/// The payloads of whole packets.
pub(crate) fn packets(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let end = HEADER_LEN + Header::parse(rest)?.len;
        let packet = rest.get(HEADER_LEN..end)?;
        rest = rest.get(end..)?;
        Some(packet)
    })
}

const GTIDS: &str = "session_track_gtids";
/// ER_VARIABLE_NOT_SETTABLE_IN_TRANSACTION.
const NOT_IN_TRANSACTION: ServerError = ServerError { code: 1766, sqlstate: *b"HY000" };
/// MySQL's error for a variable that is listed twice.
const DUPLICATE_VARIABLE: ServerError = ServerError { code: 3026, sqlstate: *b"HY000" };

impl Pools {
    /// What a session sees that has set nothing.
    pub(crate) fn track_defaults(&self, ctx: &Context, session: &Session) -> TrackPreferences {
        TrackPreferences::of(if self.speaks_mariadb(ctx, session) { Family::MariaDb } else { Family::MySql })
    }

    /// Begins a COM_QUERY that sets such variables.
    pub(crate) fn set_session_track(&mut self, ctx: &mut Context, session: &mut Session) -> Outcome {
        let text = session.command_text();
        let Some(parts) = plain_set(text, &session.execution.plan.statement(), session.tracked.dialect)
        else {
            self.refuse(ctx, session, PLAIN_ONLY);
            return Outcome::Answered;
        };
        let mut tracking = Tracking::default();
        let mut rest: Vec<&[u8]> = Vec::new();
        for part in &parts {
            let is_own = !part.user_variable && is_weirs(&part.name);
            let is_sessions = matches!(part.scope, Scope::Session | Scope::Unscoped);
            if is_own && !is_sessions {
                self.reply_error(ctx, session, LOCAL_VARIABLE, &not_global(&part.name));
                return Outcome::Answered;
            }
            let is_track = !part.user_variable && part.name.starts_with("session_track_") && is_sessions;
            if !is_track && !is_own {
                rest.push(&text[part.range.clone()]);
                continue;
            }
            let expression = &text[part.value_range.clone()];
            tracking.items.push(Item {
                name: part.name.clone(),
                expression: expression.to_vec(),
                value: Given::of_literal(expression, session.tracked.dialect),
            });
        }
        // What such code may have set at the server would pass for the session's later.
        let mut own: Vec<String> = Vec::new();
        if session.is_opaque() {
            own.extend(tracking.items.iter().filter_map(|item| TrackPreferences::back_to_weirs(&item.name)));
        }
        rest.extend(own.iter().map(String::as_bytes));
        tracking.rest = (!rest.is_empty()).then(|| [b"SET ", &*rest.join(&b", "[..])].concat());
        session.execution.tracking = Some(Box::new(tracking));
        self.track_on(ctx, session)
    }

    /// The next question, or the end.
    pub(crate) fn track_on(&mut self, ctx: &mut Context, session: &mut Session) -> Outcome {
        let Some(tracking) = session.execution.tracking.as_deref() else {
            return Outcome::Answered;
        };
        let open: Vec<&[u8]> =
            tracking.items.iter().filter(|item| item.value.is_none()).map(|item| &*item.expression).collect();
        let question = if !open.is_empty() {
            Some([b"SELECT ", &*open.join(&b", "[..])].concat())
        } else if tracking.asked.is_none() {
            let names = self.names_to_ask(ctx, session, tracking);
            let list: Vec<String> = names.iter().map(|name| literal::text(name)).collect();
            if let Some(tracking) = &mut session.execution.tracking {
                tracking.asked = Some(names);
            }
            let text = format!("SHOW VARIABLES WHERE Variable_name IN ({})", list.join(", "));
            (!list.is_empty()).then(|| text.into_bytes())
        } else {
            None
        };
        let Some(question) = question else { return self.track_done(ctx, session) };
        let question = self.substituted(ctx, session, &question, false).unwrap_or(question);
        let statement = weir_sql::scan(&question, session.tracked.dialect);
        let plan = session.execution.plan;
        session.execution.plan = plan.with_statement(CommandKind::Track, statement, false);
        session.execution.tries.is_sent = false;
        session.execution.text.rewritten = Some(question);
        Outcome::Run
    }

    /// Names in the lists of which it matters whether they are variables, and this worker does not know it.
    fn names_to_ask(&self, ctx: &Context, session: &Session, tracking: &Tracking) -> HashSet<String> {
        let mut names = HashSet::new();
        for item in &tracking.items {
            let (SYSTEM_VARIABLES, Some(Given::Text(list))) = (item.name.as_str(), &item.value) else {
                continue;
            };
            let mut seen = HashSet::new();
            for name in TrackPreferences::questionable(list).take(NAMES_MAX) {
                // MySQL keeps unknown names, and minds variables that are there twice.
                let matters = self.speaks_mariadb(ctx, session) || !seen.insert(name.clone());
                if matters && !ctx.learnt.variable_names.contains(&*name) {
                    names.insert(name);
                }
            }
        }
        names
    }

    /// All is known: the client sees what it has asked for, or why not.
    fn track_done(&mut self, ctx: &mut Context, session: &mut Session) -> Outcome {
        let Some(mut tracking) = session.execution.tracking.take() else {
            return Outcome::Answered;
        };
        let mut preferences =
            session.track.as_deref().cloned().unwrap_or_else(|| self.track_defaults(ctx, session));
        // MySQL refuses this one there.
        let sets_gtids =
            !self.speaks_mariadb(ctx, session) && tracking.items.iter().any(|item| item.name == GTIDS);
        if sets_gtids && session.pins.pins().contains(Pins::TRANSACTION) {
            let message =
                format!("The system variable {GTIDS} cannot be set when there is an ongoing transaction.");
            self.reply_error(ctx, session, NOT_IN_TRANSACTION, &message);
            return Outcome::Answered;
        }
        let mut own = session.own_settings();
        for item in &tracking.items {
            if let Err((code, message)) = assign(ctx, session, &mut preferences, &mut own, item) {
                self.reply_error(ctx, session, code, &message);
                return Outcome::Answered;
            }
        }
        let names = tracking.items.iter().map(|item| item.name.as_str());
        let tracks = preferences.own_tracks(names);
        let rest =
            tracking.rest.take().map(|rest| self.substituted(ctx, session, &rest, false).unwrap_or(rest));
        let before = Before { track: session.track.clone(), own: session.own_settings() };
        if tracking.items.iter().any(|item| !is_weirs(&item.name)) {
            session.track = Some(Box::new(preferences));
        }
        session.set_own(own);
        let Some(rest) = rest else {
            session.diagnostics.row_count = 0;
            session.reply_ok_with(ctx, &tracks);
            return Outcome::Answered;
        };
        tracking.before = Some(before);
        session.execution.ending = Ending::None;
        session.execution.tracking = Some(tracking);
        let statement = weir_sql::scan(&rest, session.tracked.dialect);
        let plan = session.execution.plan;
        session.execution.plan = plan.with_statement(CommandKind::Query, statement, plan.is_read());
        session.execution.tries.is_sent = false;
        session.execution.text.rewritten = Some(rest);
        Outcome::Run
    }

    /// The server reports one of these variables: code that no SET of the session's shows has set it.
    pub(crate) fn track_reported(&self, ctx: &Context, session: &mut Session, name: &str, value: &str) {
        // What Weir puts back itself is no news.
        if session.execution.tracking.is_some() {
            return;
        }
        let defaults = self.track_defaults(ctx, session);
        let preferences = session.track.get_or_insert_with(|| Box::new(defaults));
        // The server has checked it.
        let taken = preferences.assign(name, &Given::Text(value.to_owned()), |_| true);
        debug_assert!(taken.is_ok(), "{name}: {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_the_character_set_of_the_answer() {
        let text = |value: &[u8], charset| given(ColumnType::VAR_STRING, Some(value), Encoding::of(charset));
        assert_eq!(text(b"a,b", "latin1"), Given::Text("a,b".to_owned()));
        assert_eq!(text(b"\0a\0,\0b", "utf16"), Given::Text("a,b".to_owned()));
        assert_eq!(text(b"a\0,\0b\0", "utf16le"), Given::Text("a,b".to_owned()));
        assert_eq!(text(b"a@002cb", "filename"), Given::Text("a,b".to_owned()));
        let number = |value: &[u8], charset| given(ColumnType::LONGLONG, Some(value), Encoding::of(charset));
        assert_eq!(number(b"-1", "utf32"), Given::Integer(-1));
        assert_eq!(number(b"\0\0\0-\0\0\x001", "utf32"), Given::Integer(-1));
        assert_eq!(number(b"@002d1", "filename"), Given::Integer(-1));
        assert_eq!(given(ColumnType::LONGLONG, None, None), Given::Null);
    }
}
