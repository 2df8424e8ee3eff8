//! Draws the live view: in place on a terminal, a plain line per second elsewhere.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use crate::accidents::{Accident, Accidents};
use crate::servers::{ServerRow, ServerWatch};
use crate::stats::{Latency, Stats, Totals};

const PLAIN_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that is shown.
pub(crate) struct View<'a> {
    pub(crate) listen: SocketAddrV4,
    pub(crate) connections: u32,
    pub(crate) stats: &'a Stats,
    pub(crate) watch: &'a ServerWatch,
    pub(crate) accidents: &'a Accidents,
}

/// Standard output, as a terminal or not.
pub(crate) struct Screen {
    in_place: bool,
    /// Lines of the last drawing, which the next one covers.
    lines: usize,
    last: Instant,
    last_statements: u64,
    accidents_told: usize,
}

impl Screen {
    pub(crate) fn new() -> Screen {
        let in_place = io::stdout().is_terminal();
        Screen { in_place, lines: 0, last: Instant::now(), last_statements: 0, accidents_told: 0 }
    }

    /// Shows the present.
    pub(crate) fn draw(&mut self, view: &View<'_>) {
        if !self.in_place && self.last.elapsed() < PLAIN_INTERVAL {
            return;
        }
        let totals = view.stats.totals();
        let seconds = self.last.elapsed().as_secs_f64().max(0.001);
        let per_s = (totals.statements - self.last_statements) as f64 / seconds;
        (self.last, self.last_statements) = (Instant::now(), totals.statements);
        let latency = view.stats.take_recent_latency();
        if self.in_place {
            let text = full(view, per_s, totals, latency);
            self.replace(&text);
        } else {
            self.tell(view, per_s, totals, latency);
        }
    }

    /// Shows the whole, and leaves it there.
    pub(crate) fn finish(&mut self, view: &View<'_>) {
        view.stats.take_recent_latency();
        let totals = view.stats.totals();
        let per_s = totals.statements as f64 / view.stats.elapsed().as_secs_f64().max(0.001);
        let mut text = full(view, per_s, totals, view.stats.latency());
        text.push_str(&server_totals(&view.watch.rows()));
        for message in view.stats.messages() {
            let _ = writeln!(text, "  error at {message}");
        }
        self.replace(&text);
    }

    fn replace(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        if self.in_place && self.lines > 0 {
            // Up to the first line of the last drawing, and clear from there on.
            let _ = write!(out, "\x1b[{}A\x1b[J", self.lines);
        }
        let _ = writeln!(out, "{text}");
        let _ = out.flush();
        self.lines = text.matches('\n').count() + 1;
    }

    fn tell(&mut self, view: &View<'_>, per_s: f64, totals: Totals, latency: Latency) {
        let accidents = view.accidents.so_far();
        for accident in accidents.iter().skip(self.accidents_told) {
            println!("{:5.1} s  -- {}", accident.at.as_secs_f64(), accident.what);
        }
        self.accidents_told = accidents.len();
        let mut servers = String::new();
        for row in view.watch.rows() {
            let _ = write!(servers, "  {} {:.0}r {:.0}w", row.name, row.reads_per_s, row.writes_per_s);
        }
        println!(
            "{:5.1} s  {per_s:6.0} statements/s  p50 {:.1} ms  p99 {:.1} ms  errors {}{servers}",
            view.stats.elapsed().as_secs_f64(),
            latency.p50_ms,
            latency.p99_ms,
            totals.errors,
        );
    }
}

fn full(view: &View<'_>, per_s: f64, totals: Totals, latency: Latency) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = writeln!(
        text,
        "Weir on {}, {} connections, {:.0} s",
        view.listen,
        view.connections,
        view.stats.elapsed().as_secs_f64()
    );
    let _ = writeln!(
        text,
        "  statements/s {per_s:8.0}   in all {:9}   errors {}   stale reads {}",
        totals.statements, totals.errors, totals.stale
    );
    let _ = writeln!(
        text,
        "  latency ms   p50 {:6.2}   p99 {:6.2}   longest {:.0}",
        latency.p50_ms, latency.p99_ms, latency.max_ms
    );
    let _ = writeln!(text, "\n  {:24}{:18}{:>10}{:>10}", "server", "state", "reads/s", "writes/s");
    for row in view.watch.rows() {
        let server = format!("{} {}", row.name, row.address);
        let _ =
            writeln!(text, "  {server:24}{:18}{:10.0}{:10.0}", row.state, row.reads_per_s, row.writes_per_s);
    }
    text.push_str(&accident_table(&view.accidents.so_far()));
    text
}

fn accident_table(accidents: &[Accident]) -> String {
    let mut text = String::new();
    if accidents.is_empty() {
        return text;
    }
    let _ = writeln!(text, "\n  {:44}{:>10}{:>11}{:>8}", "what happened", "no read", "no write", "errors");
    for accident in accidents {
        let what = format!("{:5.1} s  {}", accident.at.as_secs_f64(), accident.what);
        let ms = |pause: Duration| format!("{} ms", pause.as_millis());
        let (reads, writes) = (ms(accident.pauses.reads), ms(accident.pauses.writes));
        let _ = writeln!(text, "  {what:44}{reads:>10}{writes:>11}{:>8}", accident.errors);
    }
    text
}

fn server_totals(rows: &[ServerRow]) -> String {
    let mut text = format!("\n  {:24}{:>12}{:>12}\n", "statements in all", "reads", "writes");
    for row in rows {
        let _ = writeln!(
            text,
            "  {:24}{:12}{:12}",
            format!("{} {}", row.name, row.address),
            row.reads,
            row.writes
        );
    }
    text
}
