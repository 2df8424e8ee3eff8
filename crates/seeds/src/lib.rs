//! Repeats tests from a seed: small random numbers ([`SplitMix`]), and the corpora of the fuzz targets with mutations
//! ([`Corpus`]), so that an ordinary `cargo test` covers what fuzzing found.

mod corpus;
mod split_mix;

pub use corpus::Corpus;
pub use split_mix::SplitMix;
