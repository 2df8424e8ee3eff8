//! Holds the view's state, and the keys that change it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::rates::Rates;
use crate::top_data::TopData;

/// A filter has at most so many characters.
const FILTER_CHARS_MAX: usize = 64;

/// Everything that a frame is made of.
#[derive(Debug, Default)]
pub struct App {
    pub(crate) rates: Rates,
    pub(crate) focus: Pane,
    /// By pane.
    pub(crate) sorts: [Sort; 3],
    /// First row shown, by pane.
    pub(crate) scrolled: [usize; 3],
    /// The pane with the focus has the whole screen.
    pub(crate) is_zoomed: bool,
    pub(crate) is_paused: bool,
    pub(crate) shows_help: bool,
    /// Only rows with this text are shown.
    pub(crate) filter: String,
    pub(crate) is_typing: bool,
    /// Why there is nothing new.
    pub(crate) trouble: Option<String>,
}

/// A part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    Servers,
    #[default]
    Digests,
    Sessions,
}

/// The order of a pane's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sort {
    /// Which of [`Pane::orders`].
    pub by: usize,
    pub is_reversed: bool,
}

/// The action after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Stay,
    Quit,
}

impl Pane {
    pub(crate) const ALL: [Pane; 3] = [Pane::Servers, Pane::Digests, Pane::Sessions];

    /// The names of the orders that it knows; the first is the default.
    pub(crate) fn orders(self) -> &'static [&'static str] {
        match self {
            Self::Servers => &["hostgroup", "queries", "average", "used"],
            Self::Digests => &["load", "queries", "average", "p95", "count"],
            Self::Sessions => &["busy", "time", "pins", "user", "id"],
        }
    }

    fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    fn before(self) -> Self {
        Self::ALL[(self as usize + Self::ALL.len() - 1) % Self::ALL.len()]
    }
}

impl App {
    /// Takes what a Weir has told, unless the user wants to look at the last frame.
    pub fn take(&mut self, data: TopData) {
        self.trouble = None;
        if !self.is_paused {
            let before = std::mem::take(&mut self.rates.now);
            let is_first = before == TopData::default();
            self.rates = Rates::new((!is_first).then_some(&before), data);
        }
    }

    /// There was no answer; what is shown stays.
    pub(crate) fn miss(&mut self, trouble: String) {
        self.trouble = Some(trouble);
    }

    /// Does what a key means.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Outcome {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Outcome::Quit } else { Outcome::Stay };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Outcome::Stay;
        }
        if self.shows_help {
            self.shows_help = false;
            return Outcome::Stay;
        }
        let pane = self.focus as usize;
        match key.code {
            KeyCode::Char('q') => return Outcome::Quit,
            KeyCode::Esc if self.filter.is_empty() => return Outcome::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Tab | KeyCode::Right => self.focus = self.focus.next(),
            KeyCode::BackTab | KeyCode::Left => self.focus = self.focus.before(),
            KeyCode::Char(digit @ '1'..='3') => self.focus = Pane::ALL[digit as usize - '1' as usize],
            KeyCode::Char('s') => {
                self.sorts[pane].by = (self.sorts[pane].by + 1) % self.focus.orders().len();
                self.scrolled[pane] = 0;
            }
            KeyCode::Char('r') => self.sorts[pane].is_reversed = !self.sorts[pane].is_reversed,
            KeyCode::Char('z') | KeyCode::Enter => self.is_zoomed = !self.is_zoomed,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('h' | '?') => self.shows_help = true,
            KeyCode::Down => self.scrolled[pane] = self.scrolled[pane].saturating_add(1),
            KeyCode::Up => self.scrolled[pane] = self.scrolled[pane].saturating_sub(1),
            KeyCode::PageDown => self.scrolled[pane] = self.scrolled[pane].saturating_add(10),
            KeyCode::PageUp => self.scrolled[pane] = self.scrolled[pane].saturating_sub(10),
            KeyCode::Home => self.scrolled[pane] = 0,
            _ => {}
        }
        Outcome::Stay
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if !c.is_control() && self.filter.chars().count() < FILTER_CHARS_MAX => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.scrolled = [0; 3];
    }
}
