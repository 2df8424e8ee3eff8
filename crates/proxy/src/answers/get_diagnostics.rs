//! Answers GET DIAGNOSTICS for a session whose connection went to another one: sets its variables from the saved copy
//! of the warnings.
//!
//! The copy is what SHOW WARNINGS shows: level, number and message. The SQLSTATE follows from the number, or is that
//! of the last error; where neither is so, as after SIGNAL with a warning of its own, the statement is refused.

use weir_protocol::charset::Encoding;
use weir_protocol::frame;
use weir_protocol::ok::{OK_HEADER, OkPacket};
use weir_sql::{DiagnosticsField, DiagnosticsItem, DiagnosticsRequest};

use crate::answers::own_replies::Outcome;
use crate::context::Context;
use crate::diagnostics::conditions::{Condition, put_row};
use crate::pool::pools::Pools;
use crate::server::connection::RetainedFor;
use crate::session::retained::Retained;
use crate::session::{SavedWarnings, Session};
use crate::work::Work;

/// More bytes of conditions are not kept for a session.
const SAVED_BYTES_MAX: usize = 128 << 10;
/// A request for a condition that is not there becomes one itself.
const NO_SUCH_CONDITION: [&str; 3] = ["Error", "1758", "Invalid condition number"];

/// What NUMBER is, as an expression that leaves the conditions alone: those beyond max_error_count are counted only.
const CONDITIONS_OF_MARIADB: &str = "LEAST(@@warning_count,@@max_error_count)";

impl Work<'_> {
    /// GET DIAGNOSTICS. `None` where the connection is to answer, since it knows the conditions.
    pub(crate) fn get_diagnostics(&mut self) -> Option<Outcome> {
        let session = &*self.session;
        if session.execution.plan.statement().multi {
            return None;
        }
        let request = weir_sql::diagnostics_request(self.session.command_text(), session.tracked.dialect);
        if session.diagnostics.retained.contains(Retained::WARNINGS) {
            let counts = request.filter(|request| request.condition.is_none())?;
            return self.count_on_connection(&counts);
        }
        let Some(request) = request else {
            return Some(self.pools.refuse_diagnostics(self.ctx, self.session, "GET DIAGNOSTICS takes the forms @a = NUMBER, @b = ROW_COUNT and CONDITION <number> @a = \
                 RETURNED_SQLSTATE, @b = MYSQL_ERRNO, @c = MESSAGE_TEXT once another session has used the connection"));
        };
        if session.diagnostics.has_lost_warnings() {
            return Some(self.pools.refuse_diagnostics(self.ctx, self.session, crate::answers::saved::LOST));
        }
        let rows: Vec<Vec<u8>> = session.diagnostics.saved_rows(false).map(<[u8]>::to_vec).collect();
        let row = match request.condition {
            None => None,
            Some(number) => {
                let at = usize::try_from(number).unwrap_or(usize::MAX).wrapping_sub(1);
                let Some(row) = rows.get(at) else {
                    return Some(self.pools.no_such_condition(self.ctx, self.session));
                };
                Some(row.as_slice())
            }
        };
        let values =
            self.pools.diagnostics_values(self.ctx, self.session, &request, &rows.len().to_string(), row);
        Some(match values {
            Ok(text) => {
                self.session.execution.text.rewritten = Some(text);
                Outcome::Run
            }
            Err(why) => self.pools.refuse_diagnostics(self.ctx, self.session, why),
        })
    }

    /// NUMBER and ROW_COUNT where the connection knows the conditions. Statements that leave these alone may have run
    /// elsewhere, or Weir's own here, so that ROW_COUNT is not the connection's.
    fn count_on_connection(&mut self, counts: &DiagnosticsRequest) -> Option<Outcome> {
        if self.pools.speaks_mariadb(self.ctx, self.session) {
            let set = self
                .pools
                .diagnostics_values(self.ctx, self.session, counts, CONDITIONS_OF_MARIADB, None)
                .ok()?;
            self.session.execution.text.rewritten = Some(set);
            return Some(Outcome::Run);
        }
        // A SET would forget the conditions, so these are fetched, from the lease too.
        let session = &*self.session;
        let (lease, retained_on, socket) = (session.lease(), session.diagnostics.retained_on, session.socket);
        if let Some(lease) = lease {
            self.pools.connections[lease].traces.retained_for =
                Some(RetainedFor { session: self.session.key, socket, what: Retained::WARNINGS });
        }
        self.pools.fetch_retained(self.ctx, self.session, lease.or(retained_on)?);
        if lease.is_some() {
            self.session.diagnostics.retained_on = retained_on;
        }
        self.session.begin_again(self.ctx);
        Some(Outcome::Asked)
    }
}

/// A literal that means the same in every sql_mode and character set, of the type that the server gives. (MySQL warns of
/// utf8mb3.)
fn put_string(out: &mut Vec<u8>, is_mariadb: bool, utf8: &[u8]) {
    let charset = if is_mariadb { "utf8mb3" } else { "utf8mb4" };
    out.extend_from_slice(weir_sql::literal::hexadecimal(charset, utf8).as_bytes());
}

impl Pools {
    /// The SET statement that gives the variables their values, or why there is none.
    fn diagnostics_values(
        &self,
        ctx: &Context,
        session: &Session,
        request: &DiagnosticsRequest,
        number: &str,
        row: Option<&[u8]>,
    ) -> Result<Vec<u8>, &'static str> {
        let is_mariadb = self.speaks_mariadb(ctx, session);
        let text = session.command_text();
        let condition = row.and_then(Condition::parse);
        let mut set = b"SET ".to_vec();
        for (at, DiagnosticsItem { target, field }) in request.items.iter().enumerate() {
            if at > 0 {
                set.push(b',');
            }
            set.extend_from_slice(text.get(target.clone()).unwrap_or_default());
            set.push(b'=');
            let condition = || condition.as_ref().ok_or("the saved diagnostics can't be read");
            match field {
                DiagnosticsField::Number => set.extend_from_slice(number.as_bytes()),
                DiagnosticsField::RowCount => {
                    set.extend_from_slice(session.diagnostics.row_count.to_string().as_bytes())
                }
                DiagnosticsField::MysqlErrno => {
                    set.extend_from_slice(condition()?.code.to_string().as_bytes());
                }
                DiagnosticsField::ReturnedSqlstate => {
                    let known = session.diagnostics.sqlstate_of(condition()?, is_mariadb);
                    let state = known
                        .ok_or("the SQLSTATE was not saved before another session took the connection")?;
                    put_string(&mut set, is_mariadb, &state);
                }
                DiagnosticsField::MessageText => {
                    let message = condition()?.text(session.diagnostics.saved_encoding()).ok_or(
                        "the saved message may lack characters that character_set_results can't express",
                    )?;
                    put_string(&mut set, is_mariadb, message.as_bytes());
                }
            }
        }
        Ok(set)
    }

    /// The servers answer with an OK, set nothing, and add an error to the conditions.
    fn no_such_condition(&self, ctx: &mut Context, session: &mut Session) -> Outcome {
        let is_mariadb = self.speaks_mariadb(ctx, session);
        session.diagnostics.row_count = -1;
        let saved = session.diagnostics.saved_warnings.get_or_insert_with(|| {
            let mut no_columns = Vec::new();
            frame::packet(&mut no_columns, &mut 0, |out| out.push(0));
            Box::new(SavedWarnings { packets: no_columns, encoding: Some(Encoding::Utf8) })
        });
        // In the bytes of the others.
        let mut row = Vec::new();
        put_row(&mut row, NO_SUCH_CONDITION, saved.encoding.unwrap_or(Encoding::Utf8), is_mariadb);
        if saved.packets.len() + row.len() <= SAVED_BYTES_MAX {
            saved.packets.extend_from_slice(&row);
        }
        let capabilities = session.capabilities;
        let ok = OkPacket { warnings: 1, ..OkPacket::new(OK_HEADER, session.status()) };
        let mut sequence = 1;
        if let Some(buffer) = ctx.out.buffer(session.socket) {
            frame::packet(buffer, &mut sequence, |out| ok.write(capabilities, out));
        }
        Outcome::Answered
    }

    fn refuse_diagnostics(&mut self, ctx: &mut Context, session: &mut Session, why: &str) -> Outcome {
        self.refuse(ctx, session, why);
        Outcome::Answered
    }
}
