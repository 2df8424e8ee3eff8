//! Counts latencies in bounded memory, whatever their number.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longer ones are counted as this one, µs.
const LATENCY_MAX_US: u64 = 60_000_000;
/// Significant digits of what is told.
const DIGITS: u8 = 3;

/// The latencies of some statements.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        // Fails for bounds out of order or more than 5 digits only.
        Latencies(
            Histogram::new_with_bounds(1, LATENCY_MAX_US, DIGITS)
                .unwrap_or_else(|_| unreachable!("fixed bounds")),
        )
    }
}

impl Latencies {
    /// One more.
    pub fn record(&mut self, latency: Duration) {
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(latency_us.clamp(1, LATENCY_MAX_US));
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// What `percent` of them do not exceed, ms; `None` of none.
    pub fn percentile_ms(&self, percent: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_percentile(percent) as f64 / 1000.0)
    }

    /// Moves all of them to others.
    pub fn move_to(&mut self, others: &mut Latencies) {
        // Fails only if the others could not hold a value of these: they have the same bounds.
        let _ = others.0.add(&self.0);
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut latencies = Latencies::default();
        assert_eq!((latencies.percentile_ms(50.0), latencies.percentile_ms(100.0)), (None, None));
        (1..=100).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        let near = |percent, ms: f64| (latencies.percentile_ms(percent).unwrap() - ms).abs() < ms / 500.0;
        assert!(near(50.0, 50.0) && near(99.0, 99.0) && near(100.0, 100.0));
        let mut all = Latencies::default();
        latencies.record(Duration::from_secs(3600));
        latencies.move_to(&mut all);
        assert_eq!((latencies.count(), all.count()), (0, 101));
        assert!((all.percentile_ms(100.0).unwrap() - 60_000.0).abs() < 60.0);
    }
}
