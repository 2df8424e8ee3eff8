//! Asks a running Weir over its control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_statistics::{Report, Status};
use weir_top::TopData;

use super::{ANSWER_BYTES_MAX, Answer, Request, Subject, socket_path};

/// A report of full tables takes a Weir well under a second, an order its grace.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(70);

/// The answers of a Weir, line by line.
type Answers = io::Take<BufReader<UnixStream>>;

/// The way to a running Weir.
#[derive(Debug)]
pub(crate) struct ControlClient {
    path: PathBuf,
}

/// Why a running Weir could not be asked, or does not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlClientError {
    #[error("{}: no weir answers ({error}): is one running with this datadir?", path.display())]
    NotThere { path: PathBuf, error: io::Error },
    #[error("{}: no answer: {error}", path.display())]
    NoAnswer { path: PathBuf, error: io::Error },
    #[error("{}: the running weir has another version than this command: {error}", path.display())]
    Garbled { path: PathBuf, error: serde_json::Error },
    #[error("{}: unexpected answer", .0.display())]
    Unexpected(PathBuf),
    #[error("{0}")]
    Refused(String),
    #[error("{}: {error}", path.display())]
    Log { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Output(io::Error),
    #[error(transparent)]
    Top(#[from] weir_top::TopError),
}

impl ControlClient {
    /// To the Weir with this `datadir`.
    pub(crate) fn new(datadir: &Path) -> Self {
        Self { path: socket_path(datadir) }
    }

    /// The datadir behind it.
    pub(crate) fn datadir(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// What has been counted.
    pub(crate) fn report(&self, subject: Subject) -> Result<Report, ControlClientError> {
        match self.ask(&Request::Report(subject))? {
            Answer::Report(report) => Ok(report),
            _ => Err(ControlClientError::Unexpected(self.path.clone())),
        }
    }

    /// Who does what now.
    pub(crate) fn status(&self) -> Result<Status, ControlClientError> {
        match self.ask(&Request::Status {})? {
            Answer::Status(status) => Ok(status),
            _ => Err(ControlClientError::Unexpected(self.path.clone())),
        }
    }

    /// What `weir top` shows.
    pub(crate) fn top_data(&self) -> Result<TopData, ControlClientError> {
        match self.ask(&Request::TopData {})? {
            Answer::TopData { top_data } => Ok(*top_data),
            _ => Err(ControlClientError::Unexpected(self.path.clone())),
        }
    }

    /// Has something done; returns what was done, in words. `step` is called with what is done meanwhile.
    pub(crate) fn order(
        &self,
        request: &Request,
        mut step: impl FnMut(&str),
    ) -> Result<String, ControlClientError> {
        let mut answers = self.send(request)?;
        loop {
            match self.next_answer(&mut answers)? {
                Answer::Step { step: text } => step(&text),
                Answer::Done { done } => return Ok(done),
                _ => return Err(ControlClientError::Unexpected(self.path.clone())),
            }
        }
    }

    fn ask(&self, request: &Request) -> Result<Answer, ControlClientError> {
        self.next_answer(&mut self.send(request)?)
    }

    fn send(&self, request: &Request) -> Result<Answers, ControlClientError> {
        let path = || self.path.clone();
        let no_answer = |error| ControlClientError::NoAnswer { path: path(), error };
        let mut stream = UnixStream::connect(&self.path)
            .map_err(|error| ControlClientError::NotThere { path: path(), error })?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(no_answer)?;
        let mut line = serde_json::to_vec(request)
            .map_err(|error| ControlClientError::Garbled { path: path(), error })?;
        line.push(b'\n');
        stream.write_all(&line).map_err(no_answer)?;
        Ok(BufReader::new(stream).take(ANSWER_BYTES_MAX))
    }

    /// # Errors
    /// Also when the Weir refuses.
    fn next_answer(&self, answers: &mut Answers) -> Result<Answer, ControlClientError> {
        let path = || self.path.clone();
        let no_answer = |error| ControlClientError::NoAnswer { path: path(), error };
        let mut line = Vec::new();
        answers.read_until(b'\n', &mut line).map_err(no_answer)?;
        if line.is_empty() {
            return Err(no_answer(io::ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_slice(&line) {
            Ok(Answer::Refused { error }) => Err(ControlClientError::Refused(error)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(ControlClientError::Garbled { path: path(), error }),
        }
    }
}
