//! Plays maintenance while two Weirs stand in front of the servers: either gets orders in turn, and the clients of both notice
//! nothing.

mod pair;
mod refused;

use std::time::Duration;

use weir_lab::goals::GoalChecks;
use weir_lab::record::Recording;
use weir_lab::report::percentile;
use weir_lab::{Error, Moment};

use crate::scenarios::Seen;
use crate::scenarios::switchover::{calm_pauses, sorted_pauses};
use crate::stage::{Finished, Stage, progress};
use pair::{Pair, Runs};
use weir_lab::servers::{RunningWeir, Server, Servers, Told};

/// Between two orders.
const GAP: Duration = Duration::from_millis(500);
/// Statements that were held are answered a moment after the order has come back.
const AFTERMATH_MS: u64 = 150;
/// Transactions in progress are waited for so long, else an order is undone.
const GRACE_MS: u32 = 5_000;
/// The longest until nothing runs any more on a server that was taken out.
const EMPTY_TIMEOUT_S: &str = "60";
/// Orders that were not carried out, and are named; the others are only counted.
const NAMED_MAX: usize = 5;

/// What is ordered in every round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Switchover,
    DrainWriter,
    DrainReader,
    SoftWriter,
    SoftReader,
}

impl Order {
    const ALL: [Order; 5] =
        [Order::Switchover, Order::DrainWriter, Order::DrainReader, Order::SoftWriter, Order::SoftReader];

    fn name(self) -> &'static str {
        match self {
            Order::Switchover => "switchover",
            Order::DrainWriter => "drain of the writer",
            Order::DrainReader => "drain of a reader",
            Order::SoftWriter => "OFFLINE_SOFT of the writer",
            Order::SoftReader => "OFFLINE_SOFT of a reader",
        }
    }

    /// Whether nobody writes from the order until it is taken back: with asynchronous replication no other server takes the
    /// place of a writer that is OFFLINE_SOFT, and statements wait. That is so for the Weir that it was said to.
    fn holds(self, servers: &Servers) -> bool {
        self == Order::SoftWriter && matches!(servers, Servers::Replication(_))
    }

    fn is_of_writer(self) -> bool {
        matches!(self, Order::Switchover | Order::DrainWriter | Order::SoftWriter)
    }
}

/// An order, or the one that takes it back, while it was carried out.
struct Span {
    order: Order,
    is_back: bool,
    by: usize,
    time: (Moment, Moment),
}

/// What was ordered, and what was not carried out.
#[derive(Default)]
struct Ordered {
    spans: Vec<Span>,
    /// By which Weir, and what it said.
    failed: Vec<(usize, String)>,
}

/// On Galera, or on a source with its replicas.
pub(super) fn run(stage: &Stage<'_>) -> Result<Vec<Seen>, Error> {
    stage.healthy()?;
    stage.forget_weirs()?;
    let pair = Pair::start(stage)?;
    let mut runs = pair.runs(stage)?;
    let mut ordered = Ordered::default();
    let count = stage.scale.rounds;
    for round in 0..count as usize {
        for (at, order) in Order::ALL.into_iter().enumerate() {
            // Each Weir gets each order in turn.
            ordered.one(stage, &pair, &mut runs, order, round, (round + at) % 2)?;
        }
        if (round + 1) % 5 == 0 {
            progress(&format!("  {} of {count} rounds", round + 1));
        }
    }
    let [one, two] = runs.finish(stage)?;
    let mut seen = vec![ordered.seen(stage, one, 0), ordered.seen(stage, two, 1)];
    seen.push(refused::run(stage, &pair)?);
    Ok(seen)
}

impl Ordered {
    /// Orders something, and takes it back.
    fn one(
        &mut self,
        stage: &Stage<'_>,
        pair: &Pair,
        runs: &mut Runs,
        order: Order,
        round: usize,
        by: usize,
    ) -> Result<(), Error> {
        let writer = pair.ready(stage, by)?;
        let target = if order.is_of_writer() { writer } else { pair.reader(stage, &writer, round)? };
        let text = format!("{} {} by Weir {}", order.name(), target.name, by + 1);
        let from = runs.mark(&text);
        let told = carry_out(stage, pair, order, by, &target)?;
        if order.holds(stage.servers()?) {
            let back = take_back(stage, pair, order, by, &target)?;
            self.note((order, false), by, from, if told.succeeded { back } else { told });
            return stage.stop.sleep(GAP);
        }
        self.note((order, false), by, from, told);
        stage.stop.sleep(GAP)?;
        if order != Order::Switchover {
            let from = runs.mark(&format!("{} is back", target.name));
            let told = take_back(stage, pair, order, by, &target)?;
            self.note((order, true), by, from, told);
            stage.stop.sleep(GAP)?;
        }
        Ok(())
    }

    fn note(&mut self, (order, is_back): (Order, bool), by: usize, from: Moment, told: Told) {
        self.spans.push(Span { order, is_back, by, time: (from, Moment::now().plus_ms(AFTERMATH_MS)) });
        if !told.succeeded {
            let text = told.text.replace('\n', " ");
            self.failed.push((by, format!("{} by Weir {}: {text}", order.name(), by + 1)));
        }
    }

    /// What the clients of one of the two have seen.
    fn seen(&self, stage: &Stage<'_>, finished: Finished, weir: usize) -> Seen {
        let mut figures = finished.figures();
        // Each server stays where it is: there is no new view.
        (figures.group_ms, figures.own_share_ms) = (None, None);
        let mut goals = GoalChecks::new(stage.args.smoke);
        let own = self.spans.iter().filter(|span| span.by == weir).count();
        let failed: Vec<&String> =
            self.failed.iter().filter(|(by, _)| *by == weir).map(|(_, text)| text).collect();
        goals.must(
            format!("{own} orders by this Weir carried out"),
            (own - failed.len()).to_string(),
            failed.is_empty(),
        );
        goals.undisturbed(&figures);
        let notes = self.notes(&finished.recording);
        let failed = failed.into_iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
        let mut seen = Seen::new(finished, figures, goals).variant(&format!("Weir {}", weir + 1));
        seen.notes.extend(notes.into_iter().chain(failed));
        seen
    }

    /// The pauses while each was carried out, wherever it was ordered.
    fn notes(&self, recording: &Recording) -> Vec<String> {
        let times = |is_wanted: &dyn Fn(&Span) -> bool| -> Vec<(Moment, Moment)> {
            self.spans.iter().filter(|span| is_wanted(span)).map(|span| span.time).collect()
        };
        let line = |name: &str, times: &[(Moment, Moment)]| {
            let pauses = spread(&sorted_pauses(recording, times));
            format!("Write pauses, {name} ({} times): {pauses}.", times.len())
        };
        let mut notes: Vec<String> = Order::ALL
            .into_iter()
            .map(|order| line(order.name(), &times(&|span| span.order == order && !span.is_back)))
            .collect();
        notes.push(line("drained and OFFLINE_SOFT servers taken back", &times(&|span| span.is_back)));
        notes.push(format!(
            "Write pauses, times as long as the first order, without one: {}.",
            spread(&calm_pauses(recording, &times(&|_| true)))
        ));
        notes
    }
}

fn spread(pauses: &[f64]) -> String {
    let at = |percent| percentile(pauses, percent).unwrap_or_default();
    format!(
        "median {:.0} ms, 99th percentile {:.0} ms, longest {:.0} ms",
        at(50.0),
        at(99.0),
        pauses.last().copied().unwrap_or_default()
    )
}

/// Gives an order, and waits until it is carried out at both Weirs.
fn carry_out(
    stage: &Stage<'_>,
    pair: &Pair,
    order: Order,
    by: usize,
    target: &Server,
) -> Result<Told, Error> {
    let (weir, address) = (pair.weir(by)?, target.address.to_string());
    match order {
        Order::Switchover => {
            weir.tell(&["switchover", &RunningWeir::hostgroup(), "--grace-ms", &GRACE_MS.to_string()])
        }
        Order::DrainWriter | Order::DrainReader => {
            weir.tell(&["drain", &address, "--timeout-s", EMPTY_TIMEOUT_S])
        }
        Order::SoftWriter | Order::SoftReader => {
            pair.set_status(by, target, "OFFLINE_SOFT")?;
            match order.holds(stage.servers()?) {
                true => pair.wait_empty_at(stage, target, &[weir]),
                false => pair.wait_empty(stage, target),
            }
        }
    }
}

/// The server gets work again.
fn take_back(
    stage: &Stage<'_>,
    pair: &Pair,
    order: Order,
    by: usize,
    target: &Server,
) -> Result<Told, Error> {
    match order {
        Order::Switchover => {}
        Order::DrainWriter | Order::DrainReader => {
            let told = pair.weir(by)?.tell(&["undrain", &target.address.to_string()])?;
            if !told.succeeded {
                return Ok(told);
            }
        }
        Order::SoftWriter | Order::SoftReader => pair.set_status(by, target, "ONLINE")?,
    }
    pair.wait_back(stage, target)
}
