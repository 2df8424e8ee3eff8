//! Gives orders that can't be carried out: refused before anything is held, and nobody notices.

use std::thread;
use std::time::Duration;

use weir_lab::goals::GoalChecks;
use weir_lab::record::{Mark, Recording, Source};
use weir_lab::{Error, Moment, rows};
use weir_testkit::Account;

use super::pair::{Pair, Runs};
use super::{AFTERMATH_MS, GAP, spread};
use crate::scenarios::Seen;
use crate::scenarios::switchover::{calm_pauses, sorted_pauses};
use crate::stage::Stage;
use weir_lab::servers::{RunningWeir, Server, Told};

/// The longest time without an answer while an order is refused. A machine that makes more than half of it by itself may
/// make twice as much.
const PAUSE_MS: f64 = 100.0;
/// What Weir says when it holds statements: as a step of an order, and in its log.
const HELD: &str = "new statements are held";
const BEGINS: &str = "switchover begins";
/// What it says while another order is carried out.
const UNDER_WAY: &str = "is under way";
/// An address at which nobody is.
const NOBODY: &str = "127.9.9.9:3306";
/// No cluster's hostgroup.
const NO_HOSTGROUP: &str = "4711";
/// The switchover that another one meets with waits for a session for so long at most: less than statements are held.
const LONG_GRACE_MS: &str = "8000";
/// The longest until it holds.
const HOLD_TIMEOUT_S: u64 = 20;

/// An order that was refused, or was not.
struct Refused {
    what: String,
    time: (Moment, Moment),
    told: Told,
    /// What the answer has to say.
    says: &'static str,
}

impl Refused {
    fn is_right(&self) -> bool {
        !self.told.succeeded && self.told.text.contains(self.says)
    }

    /// Whether no other order was under way, which may hold statements itself.
    fn is_alone(&self) -> bool {
        self.says != UNDER_WAY
    }
}

struct Refusals<'a> {
    stage: &'a Stage<'a>,
    pair: &'a Pair,
    runs: Runs,
    all: Vec<Refused>,
}

pub(super) fn run(stage: &Stage<'_>, pair: &Pair) -> Result<Seen, Error> {
    let writer = pair.ready(stage, 0)?;
    let runs = pair.runs(stage)?;
    let mut refusals = Refusals { stage, pair, runs, all: Vec::new() };
    refusals.nonsense(&writer)?;
    refusals.without_a_server(&writer)?;
    let is_first_done = refusals.during_another()?;
    refusals.seen(is_first_done)
}

impl Refusals<'_> {
    /// What can never be.
    fn nonsense(&mut self, writer: &Server) -> Result<(), Error> {
        let hostgroup = RunningWeir::hostgroup();
        let address = writer.address.to_string();
        let orders: [(&[&str], &str); 4] = [
            (&["switchover", NO_HOSTGROUP], "is not the writer hostgroup of a cluster"),
            (&["switchover", &hostgroup, "--to", NOBODY], "it is not in this cluster"),
            (&["switchover", &hostgroup, "--to", &address], "is the writer already"),
            (&["drain", NOBODY], "is not in mysql_servers"),
        ];
        orders.into_iter().try_for_each(|(order, says)| self.both(order, says))
    }

    /// One reader is drained, then it is down, then the other one is drained, too.
    fn without_a_server(&mut self, writer: &Server) -> Result<(), Error> {
        let (stage, pair) = (self.stage, self.pair);
        let hostgroup = RunningWeir::hostgroup();
        let [one, two] = [pair.reader(stage, writer, 0)?, pair.reader(stage, writer, 1)?];
        let [first, second] = [one.address.to_string(), two.address.to_string()];
        self.prepare(&["drain", &first])?;
        self.both(&["switchover", &hostgroup, "--to", &first], "can't be the writer: ")?;
        self.runs.mark(&format!("{} is stopped", one.name));
        stage.servers()?.stop(one.index)?;
        self.prepare(&["undrain", &first])?;
        self.both(&["switchover", &hostgroup, "--to", &first], "can't be the writer: ")?;
        self.prepare(&["drain", &second])?;
        let address = writer.address.to_string();
        self.both(&["drain", &address], "no other server can be the writer")?;
        self.both(&["switchover", &hostgroup], "no other server can be the writer")?;
        self.prepare(&["undrain", &second])?;
        self.runs.mark(&format!("{} is started", one.name));
        stage.servers()?.start(one.index)?;
        pair.ready(stage, 0)?;
        stage.stop.sleep(GAP)
    }

    /// A session keeps a switchover waiting, which meanwhile holds statements; nothing else may be done then. Whether the
    /// switchover is done once the session has gone.
    fn during_another(&mut self) -> Result<Option<String>, Error> {
        let (stage, pair) = (self.stage, self.pair);
        let weir = pair.weir(0)?;
        let reader = pair.reader(stage, &pair.ready(stage, 0)?, 0)?.address.to_string();
        let mut session = rows::connect(weir.target().writes, &Account::APP.into())?;
        session.query("CREATE TEMPORARY TABLE kept (id INT)")?;
        let hostgroup = RunningWeir::hostgroup();
        let before = weir.times_logged(BEGINS);
        self.runs.mark("switchover that waits for a session");
        let told = thread::scope(|scope| -> Result<Told, Error> {
            let first = scope.spawn(|| weir.tell(&["switchover", &hostgroup, "--grace-ms", LONG_GRACE_MS]));
            let held = stage
                .stop
                .wait("statements that are held", HOLD_TIMEOUT_S, || Ok(weir.times_logged(BEGINS) > before));
            let refused = held.and_then(|()| {
                for order in [&["switchover", hostgroup.as_str()][..], &["drain", reader.as_str()][..]] {
                    self.order(0, order, UNDER_WAY)?;
                }
                self.order(1, &["switchover", &hostgroup], UNDER_WAY)
            });
            // Its temporary table goes with it.
            drop(session);
            let first = first.join().unwrap_or_else(|_| {
                Err(Error::Impossible("the switchover's thread has panicked".to_owned()))
            });
            refused.and(first)
        })?;
        Ok((!told.succeeded).then_some(told.text))
    }

    /// Something that is carried out, so that something else can't be.
    fn prepare(&mut self, order: &[&str]) -> Result<(), Error> {
        self.runs.mark(&order.join(" "));
        super::super::reader_maintenance::order(self.pair.weir(0)?, order)?;
        // The other one has to know it, too.
        self.stage.stop.sleep(4 * GAP)
    }

    fn both(&mut self, order: &[&str], says: &'static str) -> Result<(), Error> {
        self.order(0, order, says)?;
        self.order(1, order, says)
    }

    fn order(&mut self, by: usize, order: &[&str], says: &'static str) -> Result<(), Error> {
        let what = format!("{} by Weir {}", order.join(" "), by + 1);
        let from = self.runs.mark(&what);
        let told = self.pair.weir(by)?.tell(order)?;
        self.all.push(Refused { what, time: (from, Moment::now().plus_ms(AFTERMATH_MS)), told, says });
        self.stage.stop.sleep(Duration::from_millis(2 * AFTERMATH_MS))
    }

    fn seen(self, not_done: Option<String>) -> Result<Seen, Error> {
        let Refusals { stage, runs, all, .. } = self;
        let [one, two] = runs.finish(stage)?;
        let mut figures = one.figures();
        let others = two.figures();
        figures.add(&others);
        figures.clients += others.clients;
        (figures.group_ms, figures.own_share_ms, figures.writers) = (None, None, None);
        let mut goals = GoalChecks::new(stage.args.smoke);
        let right = all.iter().filter(|refused| refused.is_right()).count();
        goals.must(
            format!("{} orders refused, with the cause", all.len()),
            right.to_string(),
            right == all.len(),
        );
        goals.none("statements held for them", times_held(&one.recording, &all));
        // While another switchover holds statements, they wait for that one.
        let alone: Vec<(Moment, Moment)> =
            all.iter().filter(|refused| refused.is_alone()).map(|refused| refused.time).collect();
        let pauses: Vec<f64> =
            [&one, &two].into_iter().flat_map(|run| sorted_pauses(&run.recording, &alone)).collect();
        let limit_ms = PAUSE_MS.max(2.0 * figures.undisturbed_ms);
        goals.within("write pause", pauses.iter().copied().fold(0.0, f64::max), limit_ms);
        goals.must(
            "the switchover that was under way is done",
            if not_done.is_none() { "yes" } else { "no" },
            not_done.is_none(),
        );
        goals.undisturbed(&figures);
        let mut sorted = pauses;
        sorted.sort_by(f64::total_cmp);
        let note = format!(
            "Write pauses while an order was refused: {}; without an order: {}.",
            spread(&sorted),
            spread(&calm_pauses(&one.recording, &alone))
        );
        let mut seen = Seen::new(one, figures, goals).variant("refused").note(note);
        let wrong = all.iter().filter(|refused| !refused.is_right());
        seen.notes.extend(wrong.map(|refused| {
            format!("Not refused as it should be: {}: {}", refused.what, refused.told.text.replace('\n', " "))
        }));
        seen.notes.extend(not_done.map(|text| format!("The switchover that was under way: {text}")));
        seen.notes.extend(two.audit.named);
        Ok(seen)
    }
}

/// How often statements were held for an order that was refused.
fn times_held(recording: &Recording, all: &[Refused]) -> usize {
    let begins = |mark: &&Mark| matches!(mark.source, Source::Proxy(_)) && mark.text.starts_with(BEGINS);
    let begun: Vec<Moment> = recording.marks.iter().filter(begins).map(|mark| mark.at).collect();
    let is_held = |refused: &&Refused| {
        let (from, to) = refused.time;
        let logged = refused.is_alone() && begun.iter().any(|at| (from..=to).contains(at));
        logged || refused.told.text.contains(HELD)
    };
    all.iter().filter(is_held).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(from_ms: u64, says: &'static str, text: &str) -> Refused {
        let from = Moment(0).plus_ms(from_ms);
        let told = Told { succeeded: false, text: text.to_owned() };
        Refused { what: "switchover".to_owned(), time: (from, from.plus_ms(100)), told, says }
    }

    #[test]
    fn an_order_is_refused_by_its_cause_and_before_anything_is_held() {
        let said = "weir: n2 can't be the writer: it is drained";
        let mut all = vec![refused(1_000, "can't be the writer", said)];
        assert!(all[0].is_right());
        let mut recording = Recording::default();
        assert_eq!(times_held(&recording, &all), 0);
        // Another cause, and one that was found too late.
        all.push(refused(2_000, "is the writer already", said));
        all.push(refused(3_000, "can't be", &format!("n1 -> n2: {HELD}\nweir: n2 can't be the writer")));
        assert_eq!(all.iter().filter(|refused| refused.is_right()).count(), 2);
        assert_eq!(times_held(&recording, &all), 1);
        // A switchover begins, by a Weir's log: while nothing else is under way, and while something is.
        let begins = |ms| Mark {
            at: Moment(0).plus_ms(ms),
            text: format!("{BEGINS} hostgroup=100"),
            source: Source::Proxy(2),
        };
        recording.marks = vec![begins(1_050), begins(4_050)];
        all.push(refused(4_000, UNDER_WAY, "a switchover of hostgroup 100 is under way"));
        assert_eq!(times_held(&recording, &all), 2);
    }
}
