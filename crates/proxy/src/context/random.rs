//! Makes scrambles and jitter.

use sha2::{Digest, Sha256};
use weir_protocol::handshake::Scramble;

use super::keys::Nanos;

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
