//! The simulator's only source of chance: a seed gives the same run every time.

pub(crate) use weir_seeds::SplitMix as Random;

/// The random numbers of the world with this seed.
pub(crate) fn random(seed: u64) -> Random {
    Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678_9ABC_DEF1))
}
