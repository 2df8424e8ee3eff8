//! Measures each row.

mod allocations;
mod bulk;
mod crowd;
mod digests;
mod idle;
mod load;
mod scale;
mod watched;

use weir_lab::Error;

use crate::bench::Bench;
use crate::report::Case;
use crate::row::Row;

/// Measures a row, with proxies of its own.
pub(crate) fn measure(bench: &Bench<'_>, row: Row) -> Result<Vec<Case>, Error> {
    match row {
        Row::IdleMemory => idle::memory(bench),
        Row::IdleCpu => idle::cpu(bench),
        Row::Crowd => crowd::measure(bench),
        Row::BigResult | Row::LocalInfile => bulk::measure(bench, row),
        Row::Allocations => allocations::measure(),
        Row::Scale => scale::measure(bench),
        Row::Watched => watched::measure(bench),
        _ => match row.load() {
            Some(load) => load::measure(bench, row, load),
            None => Ok(Vec::new()),
        },
    }
}
