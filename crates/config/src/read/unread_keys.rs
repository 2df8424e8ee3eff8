//! Tells what becomes of variables and tables that nobody reads.

use crate::field::fields::{Fields, Leftover};
use crate::field::kind::Group;
use crate::model::list::known;
use crate::table::unbuilt;
use crate::table::variable::Effect;
use crate::value::scalar::Scalar;
use crate::value::suggest::quotable;

const NOT_BUILT: &str = "not built yet";
/// Who relies on a filter must not overlook that there is none.
const NOT_FILTERED: &str = "not built yet: NO STATEMENT IS FILTERED";

/// Why a table or variable has no effect.
pub(crate) fn why_without_effect(name: &str) -> &'static str {
    let filters = ["firewall_whitelist_enabled", "automatic_detect_sqli"];
    if filters.contains(&name) || name.starts_with("mysql_firewall_") { NOT_FILTERED } else { NOT_BUILT }
}

/// The names of a module's variables that are not built.
pub(crate) fn not_built(module: &'static str) -> impl Iterator<Item = &'static str> {
    unbuilt::VARIABLES.iter().filter(move |known| known.module == module).map(|known| known.name)
}

/// What becomes of a variable that nobody reads. In a file only a value that says "off" passes; in a database all
/// variables have rows, so those with their defaults say nothing.
pub(crate) fn leftover(module: &str, name: &str, value: Scalar<'_>, is_strict: bool) -> Leftover {
    let Some(known) = known(module, name) else {
        let bare = name.strip_prefix(module).and_then(|rest| rest.strip_prefix(['-', '_']));
        return match bare.filter(|bare| is_strict && !bare.is_empty()) {
            Some(bare) => {
                Leftover::NotBuilt(format!("names have no {module}- prefix here: write {}", quotable(bare)))
            }
            None => Leftover::Unknown,
        };
    };
    let is_off = known.effect == Effect::OnlyOff && value.is_off();
    let is_default = !is_strict
        && match value {
            Scalar::Text(text, _) => text.eq_ignore_ascii_case(known.default_value()),
            Scalar::Integer(number) => number.to_string() == known.default_value(),
            _ => false,
        };
    match is_off || is_default {
        true => Leftover::Nothing,
        false => Leftover::NotBuilt(why_without_effect(name).to_owned()),
    }
}

/// The variables of a module, and the faults of those that nobody reads.
pub(crate) fn read_module<T: Group>(module: &'static str, mut f: Fields<'_, '_>) -> T {
    let read = T::read(&mut f);
    let is_strict = f.report.is_strict();
    let others: Vec<&'static str> = not_built(module).collect();
    f.finish(|name, value| leftover(module, name, value, is_strict), &others);
    read
}

/// What becomes of a top-level key that nobody reads.
pub(crate) fn leftover_table(name: &str, value: Scalar<'_>, is_empty: bool) -> Leftover {
    match unbuilt::TABLES.contains(&name) {
        false => Leftover::Unknown,
        true if is_empty || value.is_off() => Leftover::Nothing,
        true => Leftover::NotBuilt(why_without_effect(name).to_owned()),
    }
}
