//! Makes small random numbers.

use std::ops::Range;

/// A source of chance that costs some nanoseconds (SplitMix64): the same numbers for the same seed, everywhere. It can be
/// foreseen.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The numbers of this seed.
    #[inline]
    pub fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    /// Any number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number of the range, which must not be empty.
    #[inline]
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }

    /// An index below `len`; 0 where there is none.
    #[inline]
    pub fn below(&mut self, len: usize) -> usize {
        (self.number() % len.max(1) as u64) as usize
    }

    /// True in `percent` of 100 cases.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        self.number() % 100 < percent
    }

    /// One of the values, of which there must be some.
    #[inline]
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.number() >> 24) as u8).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_original() {
        // Of <https://prng.di.unimi.it/splitmix64.c> with the seed 1234567.
        let mut random = SplitMix::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| random.number()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn everything_that_can_come_does() {
        let mut random = SplitMix::new(1);
        let seen: std::collections::BTreeSet<u64> = (0..100).map(|_| random.within(5..9)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert_eq!(
            (random.below(0), random.below(1), random.percent(0), random.percent(100)),
            (0, 0, false, true)
        );
        assert_eq!((random.pick(&[7]), random.bytes(3).len()), (7, 3));
    }
}
