//! The real procedures, driven step by step: each runs on a thread of its own, and every question that it puts to a server
//! or to its surroundings is handed to the world, which answers when it is that question's turn. One thread runs at a time,
//! so a world still follows from its seed. When a Weir dies its thread's next question has no answer, and it unwinds.

use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use weir_topology::procedure::{Ending, Entry, Login, Server, ServerError, Source, Surroundings};
use weir_topology::{Endpoint, Millis};

use crate::node::{endpoint, node_of, uuid_of};
use crate::queue::{MS, Time};

/// What a procedure wants of the world.
#[derive(Clone, Debug)]
pub(super) enum Call {
    /// A connection to a server.
    Connect(usize),
    IsThere(usize),
    Sleep(Time),
    Now,
    /// This Weir's clients wait, or no longer.
    Hold(bool),
    Ask(usize, Question),
    /// The connection is closed. There is no answer.
    Drop(usize),
    /// The procedure has ended. There is no answer.
    End(String),
}

/// What is asked over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Lock,
    Sources,
    IsReadOnly,
    SetReadOnly(bool),
    Position,
    Received,
    WaitFor(String, Time),
    Stop,
    Start,
    Forget,
    /// The new source, and whether it is a former writer that is told so.
    Follow(usize),
    Reconnect,
    Entry,
    Enter(Entry),
    StrikeOut,
}

/// What the world says.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Done,
    Is(bool),
    Text(String),
    Sources(Vec<Source>),
    Row(Option<Entry>),
    Connection(usize),
    Now(Time),
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("it does not answer")]
    Silent,
    #[error("the connection is broken")]
    Broken,
    #[error("it has not applied everything")]
    NotApplied,
    #[error("it is read_only")]
    ReadOnly,
}

pub(super) type Said = Result<Answer, Failure>;

/// The world's end of the way to a procedure.
pub(super) struct Procedure {
    calls: Receiver<Call>,
    answers: Sender<Said>,
}

impl Procedure {
    /// `compares` is false where any position is as good as another.
    pub(super) fn start(compares: bool, work: impl FnOnce(&mut Around) -> String + Send + 'static) -> Self {
        let (calls, inbox) = channel();
        let (outbox, answers) = channel();
        thread::spawn(move || {
            let line = Rc::new(Line { calls, answers, compares });
            let said = work(&mut Around { line: line.clone() });
            line.tell(Call::End(said));
        });
        Self { calls: inbox, answers: outbox }
    }

    /// The next question; none if the procedure has panicked.
    pub(super) fn next(&self) -> Option<Call> {
        self.calls.recv().ok()
    }

    pub(super) fn answer(&self, said: Said) {
        let _ = self.answers.send(said);
    }
}

struct Line {
    calls: Sender<Call>,
    answers: Receiver<Said>,
    compares: bool,
}

/// Its Weir has died.
struct Gone;

impl Line {
    fn tell(&self, call: Call) {
        let _ = self.calls.send(call);
    }

    fn ask(&self, call: Call) -> Said {
        self.tell(call);
        match self.answers.recv() {
            Ok(said) => said,
            Err(_) => resume_unwind(Box::new(Gone)),
        }
    }
}

/// The world as a procedure sees it.
pub(super) struct Around {
    line: Rc<Line>,
}

impl Around {
    pub(super) fn hold(&mut self, on: bool) {
        let _ = self.line.ask(Call::Hold(on));
    }
}

impl Surroundings for Around {
    type Server = Remote;

    fn connect(&mut self, server: &Endpoint) -> Result<Remote, ServerError> {
        let node = node_of(server);
        match self.line.ask(Call::Connect(node)) {
            Ok(Answer::Connection(number)) => {
                Ok(Remote { endpoint: server.clone(), id: uuid_of(node), number, line: self.line.clone() })
            }
            Ok(other) => Err(ServerError::login(server, format!("{other:?}"))),
            Err(failure) => Err(ServerError::login(server, failure)),
        }
    }

    fn is_there(&mut self, server: &Endpoint) -> bool {
        matches!(self.line.ask(Call::IsThere(node_of(server))), Ok(Answer::Is(true)))
    }

    fn now(&mut self) -> Millis {
        match self.line.ask(Call::Now) {
            Ok(Answer::Now(now)) => Millis(now / MS),
            _ => Millis(0),
        }
    }

    fn sleep(&mut self, time: Duration) -> Result<(), Ending> {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.line.ask(Call::Sleep(time)).map(drop).map_err(|_| Ending)
    }

    fn tell(&mut self, _: String) {}

    fn login(&mut self, _: &Endpoint) -> Login {
        Login { user: "replication".to_owned(), password: String::new(), is_tls: false }
    }
}

/// A connection to a modelled server.
pub(super) struct Remote {
    endpoint: Endpoint,
    id: String,
    number: usize,
    line: Rc<Line>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.line.tell(Call::Drop(self.number));
    }
}

impl Remote {
    fn ask(&self, question: Question) -> Result<Answer, ServerError> {
        let waits = if let Question::WaitFor(_, timeout) = question { timeout } else { 0 };
        let server = &self.endpoint;
        self.line.ask(Call::Ask(self.number, question)).map_err(|failure| match failure {
            Failure::Silent | Failure::Broken => ServerError::no_answer(server, failure),
            Failure::NotApplied => {
                ServerError::NotApplied { server: server.clone(), seconds: waits / (1000 * MS) }
            }
            Failure::ReadOnly => ServerError::Refused {
                server: server.clone(),
                code: 1290,
                sqlstate: "HY000".to_owned(),
                message: failure.to_string(),
            },
        })
    }

    /// An answer to another question.
    fn unfit(&self, answer: &Answer) -> ServerError {
        ServerError::no_answer(&self.endpoint, format!("{answer:?}"))
    }

    fn ask_text(&self, question: Question) -> Result<String, ServerError> {
        match self.ask(question)? {
            Answer::Text(text) => Ok(text),
            other => Err(self.unfit(&other)),
        }
    }

    fn ask_whether(&self, question: Question) -> Result<bool, ServerError> {
        match self.ask(question)? {
            Answer::Is(is) => Ok(is),
            other => Err(self.unfit(&other)),
        }
    }

    pub(super) fn reconnect(&mut self) -> Result<(), ServerError> {
        self.ask(Question::Reconnect).map(drop)
    }
}

impl Server for Remote {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn check_privileges(&mut self) -> Result<(), ServerError> {
        Ok(())
    }

    fn lock(&mut self, _: &str) -> Result<bool, ServerError> {
        self.ask_whether(Question::Lock)
    }

    fn sources(&mut self) -> Result<Vec<Source>, ServerError> {
        match self.ask(Question::Sources)? {
            Answer::Sources(sources) => Ok(sources),
            other => Err(self.unfit(&other)),
        }
    }

    fn is_read_only(&mut self) -> Result<bool, ServerError> {
        self.ask_whether(Question::IsReadOnly)
    }

    fn set_read_only(&mut self, is_read_only: bool) -> Result<(), ServerError> {
        self.ask(Question::SetReadOnly(is_read_only)).map(drop)
    }

    fn position(&mut self) -> Result<String, ServerError> {
        self.ask_text(Question::Position)
    }

    fn received(&mut self, _: &Source) -> Result<String, ServerError> {
        self.ask_text(Question::Received)
    }

    fn covers(&mut self, one: &str, other: &str) -> Result<bool, ServerError> {
        Ok(one.starts_with(other) || !self.line.compares)
    }

    fn history(&mut self) -> Result<String, ServerError> {
        self.ask_text(Question::Position)
    }

    fn lacks(&mut self, history: &str) -> Result<Option<String>, ServerError> {
        let own = self.ask_text(Question::Position)?;
        Ok((!own.starts_with(history)).then(|| history.to_owned()))
    }

    fn wait_for(&mut self, position: &str, timeout: Duration) -> Result<(), ServerError> {
        let timeout = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        self.ask(Question::WaitFor(position.to_owned(), timeout)).map(drop)
    }

    fn has_part_beyond(&mut self, _: &str) -> Result<bool, ServerError> {
        Ok(false)
    }

    fn stop_receiving(&mut self) -> Result<(), ServerError> {
        self.ask(Question::Stop).map(drop)
    }

    fn stop_replication(&mut self) -> Result<(), ServerError> {
        self.ask(Question::Stop).map(drop)
    }

    fn start_replication(&mut self) -> Result<(), ServerError> {
        self.ask(Question::Start).map(drop)
    }

    fn forget_source(&mut self) -> Result<(), ServerError> {
        self.ask(Question::Forget).map(drop)
    }

    fn follow(&mut self, source: &Endpoint) -> Result<(), ServerError> {
        self.ask(Question::Follow(node_of(source))).map(drop)
    }

    fn become_replica(&mut self, source: &Endpoint, _: &Login) -> Result<(), ServerError> {
        self.ask(Question::Follow(node_of(source))).map(drop)
    }

    fn entry(&mut self, _: u32) -> Result<Option<Entry>, ServerError> {
        match self.ask(Question::Entry)? {
            Answer::Row(row) => Ok(row),
            other => Err(self.unfit(&other)),
        }
    }

    fn enter(&mut self, entry: &Entry) -> Result<Option<String>, ServerError> {
        match self.ask(Question::Enter(entry.clone()))? {
            Answer::Text(lacking) => Ok(Some(lacking)),
            _ => Ok(None),
        }
    }

    fn strike_out(&mut self, _: u32) -> Result<(), ServerError> {
        self.ask(Question::StrikeOut).map(drop)
    }
}

/// The addresses of the first servers.
pub(super) fn endpoints(count: usize) -> Vec<Endpoint> {
    (0..count).map(endpoint).collect()
}
