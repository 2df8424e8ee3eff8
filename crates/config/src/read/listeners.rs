//! Reads the rows of listeners.

use crate::field::fields::{Fields, Row};
use crate::model::listeners::{ListenAddress, Listener, ListenerMode};
use crate::report::error::Report;
use crate::value::limits::COMMENT_CHARS_MAX;
use crate::value::suggest::unknown_word;

/// A row of `weir_listeners`.
pub(crate) fn listener(row: &Row<'_>, report: &mut Report) -> Option<Listener> {
    let mut f = Fields::of(row, report);
    let address = f.optional_text("address", 4096);
    if !f.has("address") {
        f.refuse("address", "is missing");
    }
    let address = address.and_then(|text| {
        let parsed = ListenAddress::parse(&text);
        if let Err(fault) = &parsed {
            f.refuse("address", fault);
        }
        parsed.ok()
    });
    let mut mode = ListenerMode::Split;
    if let Some(word) = f.optional_text("mode", 64) {
        match ListenerMode::of(&word) {
            Some(known) => mode = known,
            None => f.refuse("mode", unknown_word(&word, &ListenerMode::WORDS)),
        }
    }
    let hostgroup = f.optional_number("hostgroup");
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(Listener { address: address?, mode, hostgroup, comment })
}
