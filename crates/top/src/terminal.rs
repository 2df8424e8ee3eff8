//! The terminal: keys in, pictures out, and its state as it was at the end.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::app::{App, Outcome};
use crate::draw::draw;
use crate::glance::Glance;

/// How often is looked for what else than a key may have come.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Asks a Weir; an error is a sentence.
pub type Fetch = Box<dyn FnMut() -> Result<Glance, String> + Send>;

/// What came of questions.
type Answers = Receiver<Result<Glance, String>>;

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

/// Shows a Weir until the user has seen enough, with a new picture at each `interval`. The terminal is left as it was,
/// also after SIGTERM and a panic.
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
    let (orders, answers) = asker(fetch)?;
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
                Ok(glance) => app.take(glance),
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
