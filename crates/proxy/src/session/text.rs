//! Holds the text of a session's statement, and what follows from the text alone. What clients with QUERY_ATTRIBUTES
//! send beside it is taken out of the command when that begins, and goes in front of the text again when it is sent:
//! see `client::query_attributes`.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::{Command, NO_QUERY_ATTRIBUTES, put_query, put_query_with_attributes};
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_sql::{Effects, Kind, Statement, Uses};

use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::session::phase::Phase;
use crate::session::{Input, Session};

/// A command longer than this is not kept in memory: it flows to the server as it comes.
pub(crate) const COMMAND_BYTES_KEPT: usize = 1 << 20;

/// Takes a text apart without reading it as SQL: also words in comments and strings count, between two signs stands an empty
/// one. For questions where a wrong "perhaps" only costs something; the others are put to [`weir_sql::Lexer`].
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
}

impl Session {
    /// The client's own text of the statement that was prepared, where its executions go by that: with the values that hold
    /// then in the place of variables, or with variables that only Weir has.
    pub(crate) fn original_text(&self, statement: &Statement) -> Option<Box<[u8]>> {
        let is_rewritten = self.execution.text.rewritten.is_some();
        let is_virtual = statement.uses.contains(Uses::VIRTUAL_VARIABLE)
            || statement.effects.contains(Effects::VIRTUAL_VARIABLE);
        (is_rewritten && is_virtual).then(|| self.command_text().into())
    }

    /// Whether the server runs the command as several statements. It refuses them as a whole if the client did not ask
    /// for that, and then none of them does anything.
    pub(crate) fn runs_several(&self) -> bool {
        self.execution.plan.statement().multi && self.capabilities.contains(Capabilities::MULTI_STATEMENTS)
    }

    /// What stands somewhere in the statement's text, which is looked through once for all its results.
    pub(crate) fn words(&mut self) -> Words {
        if let Some(words) = self.execution.reply.words {
            return words;
        }
        let words = Words {
            hint: self.statement_text().windows(3).any(|mark| mark == b"/*+"),
            statement: self.command_text().windows(9).any(|word| word.eq_ignore_ascii_case(b"STATEMENT")),
        };
        self.execution.reply.words = Some(words);
        words
    }

    /// Looks at the session's command anew once its diagnostics have been fetched: then it may have to say
    /// something else to the server.
    pub(crate) fn begin_again(&mut self, ctx: &mut Context) {
        self.restore_query_attributes();
        self.phase = Phase::Idle;
        self.input.command_bytes = 0;
        self.input.upload = None;
        self.place.decided = Some(Box::new(*self.execution.plan.decision()));
        if self.diagnostics.fetching == 0 {
            ctx.runnable.push_back((self.key, self.socket));
        }
    }
}

impl Session {
    /// The text of the COM_QUERY at the front of the inbox.
    pub(crate) fn command_text(&self) -> &[u8] {
        self.input
            .inbox
            .get(HEADER_LEN + 1..self.input.command_bytes.min(self.input.inbox.len()))
            .unwrap_or_default()
    }
}

impl Session {
    /// The text of the session's statement, also of one that was prepared.
    pub(crate) fn statement_text(&self) -> &[u8] {
        match &self.execution.text.prepared {
            Some(prepared) => prepared.text(),
            None => self.command_text(),
        }
    }

    /// Whether the session's statement may use a table.
    fn may_use_tables(&self) -> bool {
        weir_sql::may_use_tables(self.statement_text(), self.tracked.dialect)
    }

    /// Whether statements of this kind leave older warnings where they are (MariaDB 10.11).
    pub(crate) fn kind_leaves_warnings(&self) -> bool {
        match self.execution.plan.statement().kind {
            Kind::Empty
            | Kind::Use
            | Kind::SetTransaction
            | Kind::SetRole
            | Kind::Begin
            | Kind::StartTransactionReadOnly
            | Kind::Commit
            | Kind::Rollback
            | Kind::RollbackTo
            | Kind::Savepoint
            | Kind::ReleaseSavepoint
            | Kind::UnlockTables
            | Kind::Deallocate
            | Kind::Kill
            | Kind::XaStart
            | Kind::XaEnd
            | Kind::XaPrepare
            | Kind::XaCommit
            | Kind::XaRollback
            | Kind::XaRecover
            | Kind::RenameUser
            | Kind::SetPassword
            | Kind::Help
            | Kind::Flush
            | Kind::BackupStage => true,
            Kind::Select
            | Kind::With
            | Kind::Values
            | Kind::Do
            | Kind::Set
            | Kind::SetStatement
            | Kind::Explain => !self.may_use_tables(),
            Kind::Create
            | Kind::CreateRoutine
            | Kind::Alter
            | Kind::Drop
            | Kind::Grant
            | Kind::Revoke
            | Kind::Show
            | Kind::Prepare => weir_sql::opens_no_table(self.statement_text(), self.tracked.dialect),
            // Who knows what they run; the connection has the answer.
            Kind::Call | Kind::Execute | Kind::ExecuteImmediate | Kind::Compound => true,
            _ => false,
        }
    }
}

impl Session {
    /// Whether a text that looks like a read can be trusted to be one.
    pub(crate) fn is_surely_read(&self, ctx: &Context) -> bool {
        let has_quotes = || self.command_text().iter().any(|byte| matches!(byte, b'"' | b'\\'));
        // Of a long statement only the beginning has been looked at.
        self.input.upload.is_none()
            && self.tracked.is_text_certain
            && (self.tracked.knows_sql_mode || ctx.learnt.knows_sql_mode || !has_quotes())
    }

    /// Makes the command at the front of the inbox, which is there whole, a COM_QUERY of this text.
    pub(crate) fn put_query_text(&mut self, text: &[u8]) {
        self.execution.text.is_bare = self.has_query_attributes();
        if let Some(code) = self.input.inbox.get_mut(HEADER_LEN) {
            *code = Command::Query.code();
        }
        self.input.replace_text(text);
    }
}

impl Input {
    /// Puts another text in the place of that of the COM_QUERY or COM_STMT_PREPARE at the front of the inbox, which is
    /// there whole.
    pub(crate) fn replace_text(&mut self, text: &[u8]) {
        let Some(header) = Header::parse(&self.inbox) else { return };
        let header = Header { len: text.len() + 1, ..header };
        self.inbox.splice(HEADER_LEN + 1..self.command_bytes, text.iter().copied());
        self.inbox[..HEADER_LEN].copy_from_slice(&header.encode());
        self.command_bytes = HEADER_LEN + header.len;
    }
}

impl Session {
    pub(crate) fn has_query_attributes(&self) -> bool {
        self.capabilities.contains(Capabilities::QUERY_ATTRIBUTES)
    }

    /// What goes in front of the text of its COM_QUERY, on connections that have the capability as it has.
    pub(crate) fn query_attributes(&self) -> &[u8] {
        if !self.has_query_attributes() {
            return b"";
        }
        self.execution.text.attributes.as_deref().unwrap_or(NO_QUERY_ATTRIBUTES)
    }

    /// Puts the attributes back that were taken out of the command at the front of the inbox: it is to be looked at
    /// anew from its beginning.
    pub(crate) fn restore_query_attributes(&mut self) {
        if !std::mem::take(&mut self.execution.text.is_bare) {
            return;
        }
        let attributes = self.execution.text.attributes.take();
        let attributes = attributes.as_deref().unwrap_or(NO_QUERY_ATTRIBUTES);
        let Some(header) = Header::parse(&self.input.inbox) else { return };
        let header = Header { len: header.len + attributes.len(), ..header };
        self.input.inbox[..HEADER_LEN].copy_from_slice(&header.encode());
        let at = HEADER_LEN + 1;
        self.input.inbox.splice(at..at, attributes.iter().copied());
    }

    /// Appends the COM_QUERY at the front of the inbox, or as much of it as is there, as a connection takes it that is like
    /// the session.
    pub(crate) fn put_command(&self, out: &mut Vec<u8>) {
        let command = &self.input.inbox[..self.input.command_bytes];
        if !self.execution.text.is_bare {
            return out.extend_from_slice(command);
        }
        let attributes = self.query_attributes();
        let Some(header) = Header::parse(command) else { return };
        let header = Header { len: header.len + attributes.len(), ..header };
        out.extend_from_slice(&header.encode());
        out.push(command[HEADER_LEN]);
        out.extend_from_slice(attributes);
        out.extend_from_slice(&command[HEADER_LEN + 1..]);
    }

    /// Appends a COM_QUERY with another text than the client's.
    pub(crate) fn put_query(&self, text: &[u8], out: &mut Vec<u8>) {
        match self.query_attributes() {
            b"" => put_query(out, text),
            attributes => put_query_with_attributes(out, attributes, text),
        }
    }
}

impl Session {
    pub(crate) fn executes_with(&self, uses: Uses) -> bool {
        self.execution.plan.kind() == CommandKind::Execute
            && self.execution.plan.statement().uses.contains(uses)
    }
}

/// What stands in a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// An optimizer hint: MySQL's SET_VAR is reported though it is over.
    pub hint: bool,
    /// The word STATEMENT: there may be a SET STATEMENT among several statements.
    pub statement: bool,
}

/// Whether a word stands somewhere in a text, perhaps in a comment.
pub(crate) fn has_word(text: &[u8], word: &str) -> bool {
    words(text).any(|found| found.eq_ignore_ascii_case(word.as_bytes()))
}
