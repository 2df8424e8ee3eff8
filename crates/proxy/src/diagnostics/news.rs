//! Tells a session news of its diagnostics that only a connection knew.

use crate::context::Context;
use crate::pool::turns::News;
use crate::server::connection::Asked;
use crate::session::retained::Retained;
use crate::session::{Diagnostics, Session};

impl Session {
    /// What has become of its diagnostics.
    pub(crate) fn hear(&mut self, ctx: &mut Context, news: News) {
        match news {
            News::Asked(asked) => self.diagnostics.note_asked(&asked),
            News::AnswerLost { what, .. } => {
                ctx.out.pause(self.socket, false);
                self.diagnostics.fetching -= 1;
                self.diagnostics.lose(what);
                ctx.runnable.push_back((self.key, self.socket));
            }
            News::Lost { what, .. } => {
                self.diagnostics.retained_on = None;
                self.diagnostics.retained = Retained::empty();
                self.diagnostics.lose(what);
            }
        }
    }
}

impl Diagnostics {
    /// The connection that knew its diagnostics has been asked for them.
    pub(crate) fn note_asked(&mut self, asked: &Asked) {
        self.retained_on = None;
        self.fetching += asked.answers;
        self.retained -= asked.what;
        if asked.what.contains(Retained::UNASKED) {
            self.retained -= Retained::FOUND_ROWS;
            self.found_rows = None;
        }
    }

    /// The connection that knew this is gone.
    pub(crate) fn lose(&mut self, what: Retained) {
        self.is_insert_id_lost |= what.contains(Retained::INSERT_ID);
        if what.contains(Retained::FOUND_ROWS) {
            self.found_rows = None;
        }
        if what.contains(Retained::WARNINGS) {
            self.saved_warnings = Some(Box::default());
        }
    }
}
