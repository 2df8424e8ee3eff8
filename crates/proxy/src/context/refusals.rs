//! Limits the lines of refused logins in Weir's own log: whoever knows the address can have logins refused as fast as the
//! network is.

use crate::context::Context;
use crate::keys::Nanos;

/// Lines in a row, for one worker.
const LINES_MAX: u64 = 20;

/// The time in which another line may be written.
const LINE_NS: Nanos = 1_000_000_000;

/// Which of them are logged.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// When all the lines that were written are paid for: each costs [`LINE_NS`].
    paid_at: Nanos,
    /// Refusals without a line since the last one.
    left_out: u64,
}

impl Refusals {
    /// Whether this one may have a line: then how many before it had none.
    pub(crate) fn note(&mut self, now: Nanos) -> Option<u64> {
        let paid_at = self.paid_at.max(now) + LINE_NS;
        if paid_at > now + LINES_MAX * LINE_NS {
            self.left_out += 1;
            return None;
        }
        self.paid_at = paid_at;
        Some(std::mem::take(&mut self.left_out))
    }

    /// How many had no line in a flood that is over.
    pub(crate) fn rest(&mut self, now: Nanos) -> Option<u64> {
        let is_over = self.left_out > 0 && self.paid_at <= now;
        is_over.then(|| std::mem::take(&mut self.left_out))
    }
}

impl Context {
    /// Tells of refusals that had no line, when no others come in whose line would.
    pub(crate) fn tell_of_refusals(&mut self) {
        if let Some(left_out) = self.refusals.rest(self.now) {
            tracing::info!(left_out, "some refused logins were not logged");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_has_few_lines_and_all_of_it_is_told() {
        let mut refusals = Refusals::default();
        let (mut lines, mut told) = (0, 0);
        // An hour with a thousand each second.
        for number in 0..3_600_000_u64 {
            if let Some(left_out) = refusals.note(5 + number * 1_000_000) {
                lines += 1;
                told += 1 + left_out;
            }
        }
        assert_eq!(lines, 3600 + LINES_MAX - 1);
        let end = 5 + 3_600_000 * 1_000_000;
        assert_eq!(refusals.rest(end), None, "it may go on");
        told += refusals.rest(end + LINES_MAX * LINE_NS).unwrap_or(0);
        assert_eq!(told, 3_600_000);
        assert_eq!(refusals.rest(end + 2 * LINES_MAX * LINE_NS), None, "told once");
        // After a pause as many in a row as at first.
        let later = end + 3 * LINES_MAX * LINE_NS;
        assert!((0..LINES_MAX).all(|_| refusals.note(later) == Some(0)));
        assert_eq!(refusals.note(later), None);
    }
}
