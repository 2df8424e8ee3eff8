use serde::Serialize;

/// Middle and ends of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The mean of the two in the middle if their number is even.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of no figures.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (&min, &max) = figures.first().zip(figures.last())?;
        let upper = *figures.get(figures.len() / 2)?;
        let lower = *figures.get((figures.len() - 1) / 2)?;
        Some(Spread { median: f64::midpoint(lower, upper), min, max })
    }

    /// The spread of the ratios of each round. Rounds whose divisor is 0 have no ratio.
    pub(crate) fn of_ratios(
        figures: impl IntoIterator<Item = f64>,
        divisors: impl IntoIterator<Item = f64>,
    ) -> Option<Spread> {
        let pairs = figures.into_iter().zip(divisors);
        Spread::of(pairs.filter(|&(_, divisor)| divisor > 0.0).map(|(figure, divisor)| figure / divisor))
    }
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
        let ratios = Spread::of_ratios([90.0, 45.0], [100.0, 50.0]);
        assert_eq!(ratios, Some(Spread { median: 0.9, min: 0.9, max: 0.9 }));
        assert_eq!(Spread::of_ratios([1.0, 3.0], [0.0, 2.0]).map(|r| r.median), Some(1.5));
        assert_eq!(Spread::of_ratios([1.0], [0.0]), None);
    }
}
