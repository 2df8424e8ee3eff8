//! Counts durations in a histogram of 480 bytes.

/// Buckets for each doubling.
const STEPS: u64 = 4;
/// All that took longer are in the last bucket: 2^30 µs are 18 minutes.
const LONGEST_LOG2: u32 = 30;
const BUCKETS: usize = (LONGEST_LOG2 as usize) * STEPS as usize;

/// Counts of durations in buckets that grow with them: a quantile is off by an eighth at most. Each worker has one
/// for every row of its digest table, therefore so small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u32; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS] }
    }
}

impl Histogram {
    /// Counts a duration in microseconds.
    pub fn record(&mut self, took_us: u64) {
        let count = &mut self.buckets[bucket(took_us)];
        *count = count.saturating_add(1);
    }

    /// Adds what another has counted.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.buckets.iter_mut().zip(other.buckets) {
            *count = count.saturating_add(more);
        }
    }

    /// The buckets that are not empty: number and count.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u8, u32)> {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, count)| (at as u8, *count))
    }

    /// The histogram of which these are the buckets.
    pub(crate) fn from_parts(parts: &[(u8, u32)]) -> Self {
        let mut histogram = Self::default();
        for (at, count) in parts {
            if let Some(bucket) = histogram.buckets.get_mut(usize::from(*at)) {
                *bucket = bucket.saturating_add(*count);
            }
        }
        histogram
    }

    /// How many durations were surely not longer than each of `bounds_us`: what may be longer counts for the next bound.
    pub fn cumulative<const N: usize>(&self, bounds_us: &[u64; N]) -> [u64; N] {
        let mut counts = [0; N];
        for (at, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            for (bound, sum) in bounds_us.iter().zip(&mut counts) {
                if longest_in(at) <= *bound {
                    *sum += u64::from(*count);
                }
            }
        }
        counts
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|count| u64::from(*count)).sum()
    }

    /// How long the quickest `part` (0..=1) of all took at most, in microseconds; 0 if nothing was counted.
    pub fn quantile_us(&self, part: f64) -> u64 {
        let wanted = (self.count() as f64 * part.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && seen > 0 {
                return longest_in(at);
            }
        }
        0
    }
}

fn bucket(took_us: u64) -> usize {
    if took_us < STEPS {
        return took_us as usize;
    }
    let log2 = took_us.ilog2();
    let step = took_us >> (log2 - STEPS.ilog2()) & (STEPS - 1);
    let place = u64::from(log2 - 1) * STEPS + step;
    usize::try_from(place).map_or(BUCKETS - 1, |place| place.min(BUCKETS - 1))
}

/// The longest duration that a bucket stands for.
fn longest_in(place: usize) -> u64 {
    let place = place as u64;
    if place < STEPS {
        return place;
    }
    let (log2, step) = (place / STEPS + 1, place % STEPS);
    let width = 1 << (log2 - u64::from(STEPS.ilog2()));
    (1 << log2) + (step + 1) * width - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_where_the_next_begins() {
        let mut last = 0;
        for place in 0..BUCKETS - 1 {
            let longest = longest_in(place);
            assert_eq!((bucket(longest), bucket(longest + 1)), (place, place + 1), "{place}: {longest}");
            assert!(place < STEPS as usize || (longest - last) * 8 <= longest * 2, "{place} is too wide");
            last = longest;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_the_sum() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        assert_eq!(one.quantile_us(0.5), 0);
        for took_us in 1..=500 {
            one.record(took_us);
            other.record(took_us + 500);
        }
        one.add(&other);
        for (part, exact) in [(0.0, 1), (0.5, 500), (0.95, 950), (0.99, 990), (1.0, 1000)] {
            let shown = one.quantile_us(part);
            assert!(shown >= exact && shown <= exact + exact / 4, "{part}: {shown}");
        }
    }
}
