//! Counts calls of the allocator per statement, by a test of the data plane, whose allocator counts.

use std::env;
use std::process::Command;

use weir_lab::Error;
use weir_lab::measure::{Metric, PeerSamples, Sample};

use crate::bench::{empty_case, progress};
use crate::peer::Kind;
use crate::report::Case;
use crate::row::Row;

/// The test fails at the first allocation in the steady state, so that there is no other figure than 0.
pub(super) fn measure() -> Result<Vec<Case>, Error> {
    let Some(cargo) = env::var_os("CARGO") else {
        return Err(Error::Impossible("needs cargo: run it with `make bench`".to_owned()));
    };
    progress("counting allocations: cargo test -p weir-proxy --test allocations");
    let output = Command::new(cargo)
        .args(["test", "--quiet", "-p", "weir-proxy", "--test", "allocations"])
        .output()
        .map_err(Error::io("start cargo"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.contains("allocation")).unwrap_or("the test failed");
        return Err(Error::Impossible(line.trim().to_owned()));
    }
    let mut case =
        empty_case(Row::Allocations, "point select, prepared, transaction", Row::Allocations.goals(1), &[]);
    let sample = Sample::default().with(Metric::AllocationsPerStatement, 0.0);
    case.peers.push(PeerSamples { peer: Kind::Weir.name().to_owned(), rounds: vec![sample] });
    Ok(vec![case])
}
