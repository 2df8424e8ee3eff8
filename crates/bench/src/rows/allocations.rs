//! Calls of the allocator per statement: counted by a test of the data plane, whose allocator counts.

use std::env;
use std::process::Command;

use crate::bench::{empty_case, progress};
use crate::error::BenchError;
use crate::metric::{Metric, Sample};
use crate::peer::Kind;
use crate::results::{Case, PeerSamples};
use crate::row::Row;

/// The test fails at the first allocation in the steady state, so that there is no other figure than 0.
pub(super) fn measure() -> Result<Vec<Case>, BenchError> {
    let Some(cargo) = env::var_os("CARGO") else {
        return Err(BenchError::Limit("needs cargo: run it with `make bench`".to_owned()));
    };
    progress("counting allocations: cargo test -p weir-proxy --test allocations");
    let output = Command::new(cargo)
        .args(["test", "--quiet", "-p", "weir-proxy", "--test", "allocations"])
        .output()
        .map_err(BenchError::io("start cargo".to_owned()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.contains("allocation")).unwrap_or("the test failed");
        return Err(BenchError::Limit(line.trim().to_owned()));
    }
    let mut case =
        empty_case(Row::Allocations, "point select, prepared, transaction", Row::Allocations.goals(1), &[]);
    let sample = Sample::default().with(Metric::AllocationsPerStatement, 0.0);
    case.peers.push(PeerSamples { peer: Kind::Weir, rounds: vec![sample] });
    Ok(vec![case])
}
