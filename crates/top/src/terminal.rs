//! Drives the terminal: keys in, pictures out, and its state as it was at the end.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::app::{App, Outcome};
use crate::draw::draw;
use crate::top_data::TopData;

/// How often is looked for what else than a key may have come.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// How long the terminal may take to be put back after a signal. One that is stopped (Ctrl-S) takes nothing.
const LEAVE_WAIT: Duration = Duration::from_millis(500);

/// Asks a Weir; an error is a sentence.
pub type Fetch = Box<dyn FnMut() -> Result<TopData, String> + Send>;

/// What came of questions.
type Answers = Receiver<Result<TopData, String>>;

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The Weir does not answer.
    #[error("{0}")]
    Fetch(String),
    /// The terminal does not do what it should.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Shows a Weir until the user has seen enough, with a new picture at each `interval`, or until a signal says so, or
/// the terminal is gone. The terminal is left as it was, also after SIGTERM and a panic.
///
/// The pictures have a thread of their own: crossterm reads a terminal that is gone for ever and without a pause, and
/// writing to one that is stopped waits. This thread only looks whether it is time to end.
///
/// # Errors
/// When the first question is not answered (later ones are asked again), or there is no terminal.
pub fn watch(mut fetch: Fetch, interval: Duration) -> Result<(), TopError> {
    let mut app = App::default();
    app.take(fetch().map_err(TopError::Fetch)?);
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let terminal = terminal()?;
    let asked = asker(fetch)?;
    let seen_end = ended.clone();
    let pictures = part("pictures", move || show(app, &asked, interval, &seen_end))?;
    loop {
        match pictures.recv_timeout(KEY_WAIT) {
            Ok(shown) => return shown,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("its thread has panicked").into());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if ended.load(Ordering::Relaxed) || has_hung_up(&terminal) {
            ended.store(true, Ordering::Relaxed);
            if pictures.recv_timeout(LEAVE_WAIT).is_err() {
                let _ = part("restore", ratatui::restore)?.recv_timeout(LEAVE_WAIT);
            }
            return Ok(());
        }
    }
}

/// Does something in a thread, whose result comes through the channel.
fn part<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Receiver<T>> {
    let (done, result) = channel();
    thread::Builder::new().name(name.into()).spawn(move || done.send(work()).ok())?;
    Ok(result)
}

/// The terminal that keys come from, as crossterm finds it.
fn terminal() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(rustix::io::dup(&stdin)?);
    }
    Ok(File::open("/dev/tty")?.into())
}

/// Its window has been closed, or the connection to it has been lost.
fn has_hung_up(terminal: &OwnedFd) -> bool {
    // A hang-up is told without being asked for.
    let mut looks = [PollFd::new(terminal, PollFlags::empty())];
    poll(&mut looks, Some(&Timespec::default())).is_ok_and(|found| found > 0)
}

/// Draws, and does what keys say, until one says that it is enough.
fn show(
    mut app: App,
    (orders, answers): &(Sender<()>, Answers),
    interval: Duration,
    ended: &AtomicBool,
) -> Result<(), TopError> {
    let mut terminal = ratatui::try_init()?;
    let screen = Screen;
    let mut due = Some(Instant::now() + interval);
    while !ended.load(Ordering::Relaxed) {
        terminal.draw(|frame| draw(frame, &app))?;
        if event::poll(KEY_WAIT)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && app.press(key) == Outcome::Quit
        {
            break;
        }
        while let Ok(answer) = answers.try_recv() {
            match answer {
                Ok(data) => app.take(data),
                Err(trouble) => app.miss(trouble),
            }
            due = Some(Instant::now() + interval);
        }
        // One question at a time.
        if due.is_some_and(|due| due <= Instant::now()) && orders.send(()).is_ok() {
            due = None;
        }
    }
    drop(screen);
    Ok(())
}

/// Puts the terminal back, however its scope is left.
struct Screen;

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Questions and answers of a thread, so that keys work while a Weir is slow.
fn asker(mut fetch: Fetch) -> io::Result<(Sender<()>, Answers)> {
    let (orders, inbox) = channel();
    let (sender, answers) = channel();
    thread::Builder::new()
        .name("ask".into())
        .spawn(move || while inbox.recv().is_ok() && sender.send(fetch()).is_ok() {})?;
    Ok((orders, answers))
}

/// Writes one picture of so many columns and lines as text, of what happened in an `interval`.
///
/// # Errors
/// When the Weir does not answer, or `out` takes nothing.
pub fn once(
    mut fetch: Fetch,
    interval: Duration,
    (columns, lines): (u16, u16),
    out: &mut impl Write,
) -> Result<(), TopError> {
    let mut app = App::default();
    app.take(fetch().map_err(TopError::Fetch)?);
    thread::sleep(interval);
    app.take(fetch().map_err(TopError::Fetch)?);
    out.write_all(picture(&app, columns, lines).as_bytes())?;
    Ok(out.flush()?)
}

/// A frame as text, without colours and trailing blanks.
pub(crate) fn picture(app: &App, columns: u16, lines: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, lines));
    let Ok(_) = terminal.draw(|frame| draw(frame, app));
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(columns.max(1))) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
