//! Tracks which idle connections still hold diagnostics of sessions that have left them: see
//! [`crate::diagnostics::retained`].

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::pools::Pools;
use crate::pool::turns::News;
use crate::server::connection::{Asked, Expected, Fetch, RetainedFor};
use crate::server::connections::Connections;
use crate::session::retained::Retained;

impl Pools {
    /// An idle connection is taken for something else: what it knows of a session is asked for first.
    pub(crate) fn tell_of_retained(&mut self, ctx: &mut Context, key: ConnectionKey) {
        if let Some(asked) = self.connections.ask_for_retained(ctx, key, None) {
            self.news.push_back(News::Asked(asked));
        }
    }

    /// A connection goes: what it knew is lost.
    pub(crate) fn drop_retained(&mut self, key: ConnectionKey) {
        let connection = &mut self.connections[key];
        for expected in std::mem::take(&mut connection.replies.expected) {
            if expected.is_statement() {
                self.servers[connection.server].running -= 1;
            }
            if let Expected::Fetch(Fetch { session, socket, what, .. }) = expected {
                self.news.push_back(News::AnswerLost { session, socket, what });
            }
        }
        if let Some(RetainedFor { session, socket, what }) = connection.traces.retained_for.take() {
            self.news.push_back(News::Lost { session, socket, what });
        }
    }
}

impl Connections {
    /// Asks a connection for what it knows of a session, and forgets that it does; none if there is nothing. `id` is
    /// LAST_INSERT_ID() of the session that gets the connection, if its statement needs that.
    pub(crate) fn ask_for_retained(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        id: Option<u64>,
    ) -> Option<Asked> {
        let connection = &mut self[key];
        let RetainedFor { session, socket, what } = connection.traces.retained_for.take()?;
        let mut asked = Asked { session, socket, what, answers: 0, gives_id: false };
        let mut fetch = |what: Retained, text: &[u8], gives_id: bool| {
            connection.send_query(ctx, text);
            let encoding = connection.results_on();
            let fetch =
                Fetch { session, socket, what, bytes: Vec::new(), is_too_long: false, encoding, gives_id };
            connection.expect(ctx, Expected::Fetch(fetch));
            asked.answers += 1;
        };
        // SHOW WARNINGS leaves the other two alone.
        if what.contains(Retained::WARNINGS) {
            fetch(Retained::WARNINGS, b"SHOW WARNINGS", false);
        }
        let mut numbers = what - Retained::WARNINGS;
        if numbers.contains(Retained::UNASKED) {
            numbers -= Retained::FOUND_ROWS | Retained::UNASKED;
        }
        if !numbers.is_empty() {
            // MySQL raises a warning for FOUND_ROWS(): it is asked for only where it is wanted.
            let rows = if numbers.contains(Retained::FOUND_ROWS) { "FOUND_ROWS()" } else { "0" };
            // As binary strings: results may be in a character set that does not write digits as ASCII does.
            let text = format!(
                "SELECT CAST(CONVERT(LAST_INSERT_ID() USING latin1) AS BINARY), \
                 CAST(CONVERT({rows} USING latin1) AS BINARY)"
            );
            match id {
                None => fetch(numbers, text.as_bytes(), false),
                Some(id) => {
                    // Columns are evaluated from left to right (MariaDB 10.11, MySQL 9): one statement asks for the
                    // one session's id and gives the other one's to the connection.
                    fetch(numbers, format!("{text}, LAST_INSERT_ID({id})").as_bytes(), true);
                    connection.known.insert_id = Some(id);
                    asked.gives_id = true;
                }
            }
        }
        Some(asked)
    }
}
