//! Works out middles, ends and percentiles.

use serde::Serialize;

/// Middle and ends of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The mean of the two in the middle if their number is even.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// `None` of no figures.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (&min, &max) = figures.first().zip(figures.last())?;
        let upper = *figures.get(figures.len() / 2)?;
        let lower = *figures.get((figures.len() - 1) / 2)?;
        Some(Spread { median: f64::midpoint(lower, upper), min, max })
    }

    /// The spread of the ratios of each pair (figure, divisor). Pairs whose divisor is 0 have no ratio.
    pub fn of_ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Spread> {
        let pairs = pairs.into_iter().filter(|&(_, divisor)| divisor > 0.0);
        Spread::of(pairs.map(|(figure, divisor)| figure / divisor))
    }
}

/// The least figure that at least `percent` of all `figures` (sorted, ascending) do not exceed; `None` of no figures.
pub fn percentile(figures: &[f64], percent: f64) -> Option<f64> {
    let rank = (percent / 100.0 * figures.len() as f64).ceil() as usize;
    figures.get(rank.max(1) - 1).or(figures.last()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        let spread = |figures: &[f64]| Spread::of(figures.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0]), Some(Spread { median: 3.0, min: 3.0, max: 3.0 }));
        assert_eq!(spread(&[9.0, 1.0, 4.0]), Some(Spread { median: 4.0, min: 1.0, max: 9.0 }));
        assert_eq!(spread(&[4.0, 1.0, 9.0, 2.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine is half as fast in the second round: the ratio does not care.
        let ratios = Spread::of_ratios([(90.0, 100.0), (45.0, 50.0)]);
        assert_eq!(ratios, Some(Spread { median: 0.9, min: 0.9, max: 0.9 }));
        assert_eq!(Spread::of_ratios([(1.0, 0.0), (3.0, 2.0)]).map(|r| r.median), Some(1.5));
        assert_eq!(Spread::of_ratios([(1.0, 0.0)]), None);
    }

    #[test]
    fn percentiles_are_figures_that_occurred() {
        let figures: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&figures, 50.0), Some(100.0));
        assert_eq!(percentile(&figures, 99.0), Some(198.0));
        assert_eq!(percentile(&figures, 100.0), Some(200.0));
        assert_eq!(percentile(&[7.0], 1.0), Some(7.0));
        assert_eq!(percentile(&[], 50.0), None);
    }
}
