//! Makes histograms of durations as metrics have them.

use weir_http::Buckets;
use weir_proxy::stats::Histogram;

/// The limits of the buckets, in microseconds: from a lookup by key to a report.
const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000, 60_000_000,
];

/// In seconds. What may have taken longer than a limit counts for the next one: the workers' own buckets are others.
pub(super) fn seconds(histogram: &Histogram, sum_us: u64) -> Buckets {
    let counts = histogram.cumulative(&BOUNDS_US);
    Buckets {
        up_to: BOUNDS_US.iter().zip(counts).map(|(bound, count)| (*bound as f64 / 1e6, count)).collect(),
        count: histogram.count(),
        sum: sum_us as f64 / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_duration_is_lost_or_counted_below_its_place() {
        let mut histogram = Histogram::default();
        for took_us in [1, 90, 101, 3_000, 70_000_000] {
            histogram.record(took_us);
        }
        let buckets = seconds(&histogram, 70_003_192);
        assert_eq!((buckets.count, buckets.sum), (5, 70.003192));
        let up_to = |limit: f64| buckets.up_to.iter().find(|(at, _)| *at == limit).map(|(_, count)| *count);
        assert_eq!(
            (up_to(0.0001), up_to(0.0025), up_to(0.005), up_to(60.0)),
            (Some(2), Some(3), Some(4), Some(4))
        );
    }
}
