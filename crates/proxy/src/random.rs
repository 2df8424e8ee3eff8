//! Makes scrambles and jitter.

use sha2::Digest;
use sha2::Sha256;
use weir_protocol::handshake::Scramble;

use crate::keys::Nanos;

/// Scrambles and jitter: the hash of a secret seed and a counter, so that the driver gives the seed once and the
/// core stays deterministic.
pub(crate) struct Random {
    pub(crate) seed: [u8; 32],
    pub(crate) drawn: u64,
}

impl Random {
    pub(crate) fn block(&mut self) -> [u8; 32] {
        self.drawn += 1;
        Sha256::new().chain_update(self.seed).chain_update(self.drawn.to_le_bytes()).finalize().into()
    }

    /// 20 bytes that no client can foresee; none is zero, nor `$`, as servers have it.
    pub(crate) fn scramble(&mut self) -> Scramble {
        let block = self.block();
        std::array::from_fn(|at| 0x25 + block[at] % 0x5A)
    }

    pub(crate) fn next(&mut self) -> u64 {
        let block = self.block();
        block.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    /// `value` plus or minus a quarter.
    pub(crate) fn jitter(&mut self, value: Nanos) -> Nanos {
        value - value / 4 + self.next() % (value / 2 + 1)
    }
}

/// A source of chance that costs some nanoseconds (SplitMix64). For balancing only: it can be foreseen.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`, none if that is 0.
    pub(crate) fn below(&mut self, limit: u64) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)).checked_rem(limit)
    }
}
