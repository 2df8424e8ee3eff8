//! Records what happens to a cluster and its clients.

use std::fmt;

use serde::Serialize;

use crate::Moment;
use crate::rows::Ledger;

/// A probe: what it sends, every 5 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// An INSERT on a kept connection.
    WriteKept,
    /// Connect, an INSERT, disconnect.
    WriteNew,
    /// BEGIN, an INSERT, COMMIT, and a read of the row, on a kept connection.
    WriteTransaction,
    /// A SELECT on a kept connection.
    ReadKept,
    /// Connect, a SELECT, disconnect.
    ReadNew,
}

impl Stream {
    /// All of them.
    pub const ALL: [Stream; 5] =
        [Stream::WriteKept, Stream::WriteNew, Stream::WriteTransaction, Stream::ReadKept, Stream::ReadNew];

    /// What its rows have in the column `stream`.
    pub fn number(self) -> u8 {
        match self {
            Stream::WriteKept => 1,
            Stream::WriteNew => 2,
            Stream::WriteTransaction => 3,
            Stream::ReadKept => 4,
            Stream::ReadNew => 5,
        }
    }

    /// Whether it inserts rows.
    pub fn writes(self) -> bool {
        matches!(self, Stream::WriteKept | Stream::WriteNew | Stream::WriteTransaction)
    }

    /// Whether each statement has a connection of its own.
    pub fn is_new(self) -> bool {
        matches!(self, Stream::WriteNew | Stream::ReadNew)
    }

    /// Whether the longest time without an answer on it is a pause of the report: its statements are single ones.
    pub fn is_timed(self) -> bool {
        self != Stream::WriteTransaction
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Stream::WriteKept => "writes on a kept connection",
            Stream::WriteNew => "writes on new connections",
            Stream::WriteTransaction => "transactions",
            Stream::ReadKept => "reads on a kept connection",
            Stream::ReadNew => "reads on new connections",
        })
    }
}

/// What an error means to the application that gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A connection, a read or a write outside of transactions has failed, and has had no effect.
    Outside,
    /// A transaction is lost, and has had no effect.
    Inside,
    /// The server chose the transaction as victim of a deadlock (1213): every application repeats it. An error 1213 in the
    /// words of a proxy is not meant: that one is [`Kind::Inside`].
    Deadlock,
    /// A write or a COMMIT was sent, and nobody says what became of it.
    Unknown,
    /// A read has not seen what its own session had written.
    Stale,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Outside => "outside",
            Kind::Inside => "in a transaction",
            Kind::Deadlock => "1213",
            Kind::Unknown => "unknown",
            Kind::Stale => "stale",
        })
    }
}

/// An error that a client has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Moment,
    /// What it means.
    pub kind: Kind,
    /// In the words of the server, or the system.
    pub text: String,
    /// Whether one of sysbench's threads has got it, and not a probe.
    pub is_load: bool,
}

/// A statement of a probe that was answered as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Which probe.
    pub stream: Stream,
    /// The row's number.
    pub number: u64,
    /// When it was begun (with the connection, on new ones).
    pub sent: Moment,
    /// When it was acknowledged.
    pub done: Moment,
    /// The node that answered; 0 where only the row tells.
    pub node: u8,
}

/// A row whose statement has failed in a way that leaves open whether it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowId {
    /// [`Stream::number`].
    pub stream: u8,
    /// The row's number.
    pub number: u64,
}

/// Something that happened, for the time-line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// When.
    #[serde(skip)]
    pub at: Moment,
    /// What.
    pub text: String,
    /// Who did or said it.
    pub source: Source,
}

/// Who has done or said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// This program.
    Scenario,
    /// A server, in its log.
    Server(u8),
    /// A proxy, in its log.
    Proxy(u8),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Scenario => f.write_str("this program"),
            Source::Server(n) => write!(f, "n{n}"),
            Source::Proxy(n) => write!(f, "proxy {n}"),
        }
    }
}

/// Everything that was seen while a scenario ran.
#[derive(Debug, Default)]
pub struct Recording {
    /// When it began.
    pub begun: Moment,
    /// When it ended.
    pub ended: Moment,
    /// In the order of their ends, per stream.
    pub samples: Vec<Sample>,
    /// Errors of probes and load.
    pub failures: Vec<Failure>,
    /// Rows that may be there or not.
    pub unknown: Vec<RowId>,
    /// In the order of time.
    pub marks: Vec<Mark>,
    /// Transactions per second of sysbench, one figure for each of its seconds.
    pub load_tps: Vec<f64>,
}

impl Recording {
    /// What became of the rows.
    pub fn ledger(&self) -> Ledger {
        let writes = self.samples.iter().filter(|sample| sample.stream.writes());
        let acknowledged =
            writes.map(|sample| RowId { stream: sample.stream.number(), number: sample.number }).collect();
        Ledger { acknowledged, unknown: self.unknown.iter().copied().collect(), refused: 0 }
    }

    /// The first mark of the scenario itself: what was done to the servers.
    pub fn event(&self) -> Moment {
        self.scenario_marks().next().map_or(self.begun, |mark| mark.at)
    }

    /// What this program did, in order.
    pub fn scenario_marks(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter().filter(|mark| mark.source == Source::Scenario)
    }

    /// Times of the answers of one stream, ascending.
    pub fn answers(&self, stream: Stream) -> impl Iterator<Item = Moment> {
        self.samples.iter().filter(move |sample| sample.stream == stream).map(|sample| sample.done)
    }

    /// The longest times without an answer that overlap `from..to`: per timed stream that writes, or reads.
    pub fn pauses(&self, writes: bool, from: Moment, to: Moment) -> Vec<Pause> {
        let streams = Stream::ALL.into_iter().filter(|s| s.is_timed() && s.writes() == writes);
        streams.filter_map(|stream| self.pause(stream, from, to)).collect()
    }

    /// The longest time between two answers that both came within `from..to`, milliseconds.
    pub fn longest_within(&self, writes: bool, from: Moment, to: Moment) -> f64 {
        let streams = Stream::ALL.into_iter().filter(|s| s.is_timed() && s.writes() == writes);
        let longest = |stream| {
            let answers: Vec<Moment> = self.answers(stream).filter(|at| (from..=to).contains(at)).collect();
            answers.windows(2).map(|pair| pair[1].ms_since(pair[0])).fold(0.0, f64::max)
        };
        streams.map(longest).fold(0.0, f64::max)
    }

    fn pause(&self, stream: Stream, from: Moment, to: Moment) -> Option<Pause> {
        let ends = self.answers(stream).map(|at| (at, true)).chain([(self.ended, false)]);
        let mut last = self.begun;
        let mut longest: Option<Pause> = None;
        for (at, ended) in ends {
            let pause = Pause { stream, from: last, to: at, ended };
            if at >= from && last <= to && longest.is_none_or(|longest| pause.ms() > longest.ms()) {
                longest = Some(pause);
            }
            last = at;
        }
        longest
    }
}

/// A time without an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pause {
    /// On which stream.
    pub stream: Stream,
    /// The answer before.
    pub from: Moment,
    /// The answer after, or the end of the recording.
    pub to: Moment,
    /// Whether there was an answer after it.
    pub ended: bool,
}

impl Pause {
    /// Its length.
    pub fn ms(&self) -> f64 {
        self.to.ms_since(self.from)
    }

    /// The longest of some.
    pub fn longest(pauses: &[Pause]) -> Option<Pause> {
        pauses.iter().copied().max_by(|a, b| a.ms().total_cmp(&b.ms()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes every 5 ms on both connections but from 1000 to 1300 ms, reads all the time, for 2 s; the event is at 1 s.
    pub(crate) fn example() -> Recording {
        let at = |ms: u64| Moment(0).plus_ms(1_000 + ms);
        let mut recording = Recording { begun: at(0), ended: at(2_000), ..Recording::default() };
        for number in 0..400 {
            for stream in Stream::ALL {
                if stream.writes() && (200..260).contains(&number) {
                    continue;
                }
                let sent = at(number * 5);
                let done = sent.plus_ms(1);
                recording.samples.push(Sample { stream, number, sent, done, node: 1 });
            }
        }
        let mark = |at, text: &str, source| Mark { at, text: text.to_owned(), source };
        recording.marks = vec![
            mark(at(1_000), "SIGKILL of n1", Source::Scenario),
            mark(at(1_280), "new view of 2", Source::Server(2)),
        ];
        recording.failures.push(Failure {
            at: at(1_001),
            kind: Kind::Unknown,
            text: "error 1053 (08007): connection lost".to_owned(),
            is_load: true,
        });
        recording
    }

    #[test]
    fn the_longest_time_without_an_answer_is_found_where_it_is() {
        let recording = example();
        let (event, end) = (recording.event(), recording.ended);
        let pauses = recording.pauses(true, event, end);
        assert_eq!(pauses.len(), 2);
        let longest = Pause::longest(&pauses).unwrap();
        assert!((longest.ms() - 305.0).abs() < 1e-6 && longest.ended, "{longest:?}");
        assert!((Pause::longest(&recording.pauses(false, event, end)).unwrap().ms() - 5.0).abs() < 1e-6);
        // Before the event there was none.
        assert!(recording.longest_within(true, recording.begun, event.minus_ms(10)) < 6.0);
    }

    #[test]
    fn a_pause_without_end_lasts_to_the_end_of_the_recording() {
        let mut recording = example();
        let event = recording.event();
        recording.samples.retain(|sample| sample.done < event);
        let longest = Pause::longest(&recording.pauses(true, event, recording.ended)).unwrap();
        assert!(!longest.ended && longest.ms() > 1_000.0, "{longest:?}");
    }
}
