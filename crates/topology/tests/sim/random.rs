//! Gives every world its own numbers.

pub(crate) use weir_seeds::SplitMix as Random;

/// The source of everything that is not decided by the world of this seed.
pub(crate) fn random(seed: u64) -> Random {
    let mut random = Random::new(seed ^ 0x5EED_0F7E);
    random.number();
    random
}
