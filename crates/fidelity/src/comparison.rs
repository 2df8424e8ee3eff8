//! Judges a cell: compares everything that was seen through Weir with what was seen at the server.

use serde::Serialize;

use crate::session_view::{Looker, Masks, Seen, Value};
use crate::state::State;

/// Of a cell, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The way does not lead to this state, or the server doesn't let the routine be made.
    Na,
    /// Everybody saw what they would have seen at the server.
    Same,
    /// The same, but others had to wait for the connection while A was there.
    Waits,
    /// Weir refused in words; nobody saw anything.
    Refused,
    /// Somebody saw what they would not have seen at the server, for a reason that the guide names
    /// ([`crate::limits`]).
    Limit,
    /// The same, and there is no such reason.
    Wrong,
}

/// When something was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Moment {
    /// The answers to A's own statements.
    Acts,
    /// A is connected.
    There,
    /// A is gone.
    Gone,
}

/// What somebody saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scene {
    pub(crate) who: Looker,
    pub(crate) moment: Moment,
    /// Its place in the play: where others wait, some looks are left out.
    pub(crate) turn: u8,
    pub(crate) seen: Seen,
}

/// One difference, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) outcome: Outcome,
    /// Who has seen it.
    pub(crate) who: Looker,
    pub(crate) moment: Moment,
    /// Nothing was seen, as there was no connection in time.
    #[serde(skip)]
    pub(crate) is_late: bool,
    /// What was asked.
    #[serde(skip)]
    pub(crate) label: String,
    pub(crate) text: String,
}

/// What is needed to judge beside the scenes themselves.
pub(crate) struct Comparison<'a> {
    pub(crate) state: &'a State,
    /// What the same sessions see at the server if A does nothing.
    pub(crate) fresh: &'a [Scene],
    pub(crate) masks: &'a Masks,
}

impl Comparison<'_> {
    /// All differences of one run.
    pub(crate) fn compare(&self, direct: &[Scene], weir: &[Scene]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut refused = false;
        let nobody = Scene { who: Looker::D, moment: Moment::Gone, turn: u8::MAX, seen: Seen::new() };
        let at_turn = |scenes: &[Scene], turn: u8| {
            scenes.iter().find(|scene| scene.turn == turn).unwrap_or(&nobody).clone()
        };
        for got in weir {
            let found = self.scene(&at_turn(direct, got.turn), got);
            if refused && got.who == Looker::A {
                // What was refused must not have happened; that a part of it has is the server's way, too.
                let unchanged = self.scene(&at_turn(self.fresh, got.turn), got).is_empty();
                if unchanged {
                    continue;
                }
            }
            refused |= found.iter().any(|finding| finding.outcome == Outcome::Refused);
            findings.extend(found);
        }
        findings
    }

    fn scene(&self, wanted: &Scene, got: &Scene) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (at, (label, value)) in got.seen.iter().enumerate() {
            let expected = wanted.seen.get(at).filter(|(other, _)| other == label).map(|(_, value)| value);
            let expected = match self.masks.get(label) {
                // Weir's own: A's is not compared unless A has set it, others' must be as ever.
                Some(own) if got.who != Looker::A => Some(own),
                Some(_) if !self.is_about(label) => continue,
                _ => expected,
            };
            if expected == Some(value) {
                continue;
            }
            findings.push(Finding {
                outcome: outcome(got, value),
                who: got.who,
                moment: got.moment,
                is_late: matches!(value, Value::Waits),
                label: label.clone(),
                text: describe(got, label, value, expected),
            });
            if matches!(value, Value::Waits) {
                return findings;
            }
        }
        if got.seen.len() < wanted.seen.len() && findings.is_empty() {
            let text = format!("{:?} {:?}: nothing more was seen", got.who, got.moment);
            findings.push(Finding {
                outcome: Outcome::Wrong,
                who: got.who,
                moment: got.moment,
                is_late: false,
                label: String::new(),
                text,
            });
        }
        findings
    }

    fn is_about(&self, label: &str) -> bool {
        self.state.setting.iter().any(|setting| label == setting.variable)
    }
}

fn outcome(got: &Scene, value: &Value) -> Outcome {
    match value {
        Value::Waits if got.moment == Moment::There && got.who != Looker::A => Outcome::Waits,
        Value::Refused(_) if got.who == Looker::A => Outcome::Refused,
        _ => Outcome::Wrong,
    }
}

fn describe(got: &Scene, label: &str, value: &Value, expected: Option<&Value>) -> String {
    let word = |value: &Value| match value {
        Value::Plain(text) => format!("{text:?}"),
        Value::Refused(why) => format!("refused: {}", why.escape_debug()),
        Value::Waits => "no connection in time".to_owned(),
    };
    let when = match got.moment {
        Moment::Acts => "",
        Moment::There => ", A is there",
        Moment::Gone => ", A is gone",
    };
    let expected = expected.map_or("nothing".to_owned(), word);
    format!("{:?}{when}: {label}: {}, expected {expected}", got.who, word(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Setting;

    fn state() -> State {
        State::variable(Setting {
            variable: "time_zone".to_owned(),
            literal: "'+07:00'".to_owned(),
            reads: "+07:00".to_owned(),
        })
    }

    fn scene(who: Looker, moment: Moment, seen: &[(&str, Value)]) -> Scene {
        let seen = seen.iter().map(|(label, value)| ((*label).to_owned(), value.clone())).collect();
        Scene { who, moment, turn: moment as u8, seen }
    }

    fn plain(text: &str) -> Value {
        Value::Plain(text.to_owned())
    }

    fn cell(acts: Value, mine: Value, other: Value) -> Vec<Scene> {
        vec![
            scene(Looker::A, Moment::Acts, &[("does it", acts)]),
            scene(Looker::A, Moment::There, &[("time_zone", mine)]),
            scene(Looker::B, Moment::Gone, &[("time_zone", other)]),
        ]
    }

    fn judged(acts: Value, mine: Value, other: Value) -> Option<Outcome> {
        let fresh = cell(plain("ok"), plain("SYSTEM"), plain("SYSTEM"));
        let direct = cell(plain("ok"), plain("+07:00"), plain("SYSTEM"));
        let (state, masks) = (state(), Masks::new());
        let comparison = Comparison { state: &state, fresh: &fresh, masks: &masks };
        let findings = comparison.compare(&direct, &cell(acts, mine, other));
        findings.into_iter().map(|finding| finding.outcome).max()
    }

    #[test]
    fn what_is_the_same_is_no_finding() {
        assert_eq!(judged(plain("ok"), plain("+07:00"), plain("SYSTEM")), None);
    }

    #[test]
    fn state_that_another_session_sees_is_wrong() {
        assert_eq!(judged(plain("ok"), plain("+07:00"), plain("+07:00")), Some(Outcome::Wrong));
    }

    #[test]
    fn state_that_its_own_session_does_not_see_is_wrong() {
        assert_eq!(judged(plain("ok"), plain("SYSTEM"), plain("SYSTEM")), Some(Outcome::Wrong));
    }

    #[test]
    fn another_error_than_the_servers_is_wrong() {
        assert_eq!(judged(plain("error 1064"), plain("+07:00"), plain("SYSTEM")), Some(Outcome::Wrong));
        assert_eq!(judged(plain("closed"), plain("+07:00"), plain("SYSTEM")), Some(Outcome::Wrong));
    }

    #[test]
    fn a_refusal_in_words_is_one_only_if_nothing_has_happened() {
        let refused = || Value::Refused("1105 no".to_owned());
        assert_eq!(judged(refused(), plain("SYSTEM"), plain("SYSTEM")), Some(Outcome::Refused));
        assert_eq!(judged(refused(), plain("+08:00"), plain("SYSTEM")), Some(Outcome::Wrong));
        assert_eq!(judged(refused(), plain("SYSTEM"), plain("+07:00")), Some(Outcome::Wrong));
        assert_eq!(judged(plain("ok"), plain("+07:00"), refused()), Some(Outcome::Wrong));
    }

    #[test]
    fn others_may_wait_while_the_session_is_there_and_not_afterwards() {
        let direct = [scene(Looker::B, Moment::There, &[("time_zone", plain("SYSTEM")), ("x", plain("1"))])];
        let waiting = |moment| [scene(Looker::B, moment, &[("time_zone", Value::Waits)])];
        let (state, masks) = (state(), Masks::new());
        let comparison = Comparison { state: &state, fresh: &direct, masks: &masks };
        let outcomes =
            |got: &[Scene]| comparison.compare(&direct, got).iter().map(|f| f.outcome).collect::<Vec<_>>();
        assert_eq!(outcomes(&waiting(Moment::There)), [Outcome::Waits]);
        assert_eq!(outcomes(&waiting(Moment::Gone)), [Outcome::Wrong]);
    }

    #[test]
    fn what_is_weirs_own_must_stay_as_it_was_for_others() {
        let direct = [scene(Looker::B, Moment::Gone, &[("session_track_schema", plain("0"))])];
        let (state, masks) = (state(), Masks::from([("session_track_schema".to_owned(), plain("1"))]));
        let comparison = Comparison { state: &state, fresh: &direct, masks: &masks };
        let through = |value| [scene(Looker::B, Moment::Gone, &[("session_track_schema", plain(value))])];
        assert!(comparison.compare(&direct, &through("1")).is_empty());
        assert_eq!(comparison.compare(&direct, &through("0")).len(), 1);
    }

    #[test]
    fn a_look_that_breaks_off_is_wrong() {
        let direct = [scene(Looker::B, Moment::Gone, &[("a", plain("1")), ("b", plain("2"))])];
        let (state, masks) = (state(), Masks::new());
        let comparison = Comparison { state: &state, fresh: &direct, masks: &masks };
        let got = [scene(Looker::B, Moment::Gone, &[("a", plain("1"))])];
        assert_eq!(comparison.compare(&direct, &got).len(), 1);
    }
}
