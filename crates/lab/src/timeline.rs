//! Draws the time-line of a recording: what was answered, what failed, what happened.

use std::fmt::Write as _;

use crate::Moment;
use crate::log_watch::{LOST_QUORUM, SYNCED, VIEW, is_new_writer};
use crate::record::{Failure, Kind, Mark, Recording, Source};

/// Answers are counted per so many milliseconds, or a multiple of it where that would be less than a point.
const BUCKET_MS: u64 = 10;
const WIDTH: f64 = 1200.0;
const LEFT: f64 = 95.0;
const RIGHT: f64 = 20.0;
const LANE: f64 = 110.0;
const LANE_GAP: f64 = 34.0;
const TITLE: f64 = 40.0;
const EVENT_ROW: f64 = 15.0;
/// Events beyond these rows of labels are drawn as lines without a label.
const EVENT_ROWS: usize = 12;
const ERRORS: f64 = 56.0;
/// Shown before the first event.
const BEFORE_MS: u64 = 1_500;
/// Shown at most.
const SPAN_MS: u64 = 120_000;

/// The whole picture as an SVG document.
pub fn plot(recording: &Recording, title: &str) -> String {
    let frame = Frame::of(recording);
    let events = frame.events(recording);
    let rows = events.iter().map(|event| event.row + 1).max().unwrap_or(0).min(EVENT_ROWS);
    let top = TITLE + rows as f64 * EVENT_ROW + 10.0;
    let writes = top;
    let reads = writes + LANE + LANE_GAP;
    let errors = reads + LANE + LANE_GAP;
    let bottom = errors + ERRORS;
    let height = bottom + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    frame.lane(&mut svg, recording, writes, true);
    frame.lane(&mut svg, recording, reads, false);
    frame.errors(&mut svg, recording, errors);
    frame.draw_events(&mut svg, &events, bottom);
    frame.axis(&mut svg, bottom);
    svg.push_str("</svg>\n");
    svg
}

/// The part of the recording that is shown; times count from its first event.
struct Frame {
    from: Moment,
    to: Moment,
    event: Moment,
}

struct Event<'a> {
    mark: &'a Mark,
    row: usize,
}

impl Frame {
    fn of(recording: &Recording) -> Frame {
        let event = recording.event();
        let from = event.minus_ms(BEFORE_MS).max(recording.begun);
        Frame { from, to: recording.ended.min(from.plus_ms(SPAN_MS)), event }
    }

    fn x(&self, at: Moment) -> f64 {
        let span = self.to.ms_since(self.from).max(1.0);
        LEFT + at.ms_since(self.from) / span * (WIDTH - LEFT - RIGHT)
    }

    fn has(&self, at: Moment) -> bool {
        self.from <= at && at <= self.to
    }

    fn bucket_ms(&self) -> u64 {
        let points = WIDTH - LEFT - RIGHT;
        let buckets = self.to.ms_since(self.from) / points / BUCKET_MS as f64;
        (buckets.ceil() as u64).max(1) * BUCKET_MS
    }

    /// Answers per bucket as one filled outline.
    fn lane(&self, svg: &mut String, recording: &Recording, top: f64, writes: bool) {
        let name = if writes { "writes" } else { "reads" };
        let color = if writes { "#2f6fb0" } else { "#3a9a5b" };
        let span_ms = self.to.ms_since(self.from).max(1.0);
        let bucket_ms = self.bucket_ms();
        let count = (span_ms / bucket_ms as f64).ceil() as usize + 1;
        let mut buckets = vec![0u32; count];
        let samples = recording.samples.iter().filter(|sample| sample.stream.writes() == writes);
        for sample in samples.filter(|sample| self.has(sample.done)) {
            let at = (sample.done.ms_since(self.from) / bucket_ms as f64) as usize;
            if let Some(bucket) = buckets.get_mut(at) {
                *bucket += 1;
            }
        }
        let most = buckets.iter().copied().max().unwrap_or(0).max(1);
        let y = |count: u32| top + LANE - f64::from(count) / f64::from(most) * LANE;
        let mut path = format!("M{LEFT:.1} {:.1}", top + LANE);
        for (at, &count) in buckets.iter().enumerate() {
            let begin = self.x(self.from.plus_ms(at as u64 * bucket_ms)).min(WIDTH - RIGHT);
            let end = self.x(self.from.plus_ms((at as u64 + 1) * bucket_ms)).min(WIDTH - RIGHT);
            let _ = write!(path, "L{begin:.1} {:.1}H{end:.1}", y(count));
        }
        let base = top + LANE;
        let right = WIDTH - RIGHT;
        let _ = write!(
            svg,
            "<path d=\"{path}V{base:.1}Z\" fill=\"{color}\"/>\n\
             <path d=\"M{LEFT} {base:.1}H{right}\" stroke=\"#444\" stroke-width=\"0.5\"/>\n\
             <text x=\"{x}\" y=\"{label:.1}\" text-anchor=\"end\" font-weight=\"bold\">{name}</text>\n\
             <text x=\"{x}\" y=\"{unit:.1}\" text-anchor=\"end\" fill=\"#666\">per {bucket_ms} ms</text>\n\
             <text x=\"{x}\" y=\"{max:.1}\" text-anchor=\"end\" fill=\"#666\">{most}</text>\n",
            x = LEFT - 8.0,
            label = top + LANE / 2.0,
            unit = top + LANE / 2.0 + 14.0,
            max = top + 8.0,
        );
    }

    /// A tick per error, one row per kind.
    fn errors(&self, svg: &mut String, recording: &Recording, top: f64) {
        let kinds: [(&str, &str, &[Kind]); 3] = [
            ("errors", "#c62828", &[Kind::Outside, Kind::Stale]),
            ("in trans.", "#e08a00", &[Kind::Inside, Kind::Deadlock]),
            ("unknown", "#7b1fa2", &[Kind::Unknown]),
        ];
        for (row, (name, color, kinds)) in kinds.into_iter().enumerate() {
            let y = top + row as f64 * ERRORS / 3.0;
            let of_kind = |failure: &&Failure| kinds.contains(&failure.kind) && self.has(failure.at);
            let failures: Vec<&Failure> = recording.failures.iter().filter(of_kind).collect();
            let mut ticks = String::new();
            let mut last = f64::MIN;
            for failure in &failures {
                let x = self.x(failure.at);
                if x - last >= 0.5 {
                    let _ = write!(ticks, "M{x:.1} {y:.1}v12");
                    last = x;
                }
            }
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{color}\">{name}: {}</text>",
                LEFT - 8.0,
                y + 10.0,
                failures.len()
            );
            if !ticks.is_empty() {
                let _ = writeln!(svg, "<path d=\"{ticks}\" stroke=\"{color}\" stroke-width=\"1.5\"/>");
            }
        }
    }

    /// What is worth a line, in rows of labels that do not overlap.
    fn events<'a>(&self, recording: &'a Recording) -> Vec<Event<'a>> {
        let is_wanted = |mark: &&Mark| self.has(mark.at) && is_shown(mark);
        let mut ends: Vec<f64> = Vec::new();
        let place = |mark: &'a Mark| {
            let x = self.x(mark.at);
            let width = label(mark).chars().count() as f64 * 6.0 + 10.0;
            // Labels near the right edge stand to the left of their lines.
            let begin = if x + width > WIDTH { x - width } else { x };
            let row = ends.iter().position(|&end| end < begin).unwrap_or(ends.len());
            if row == ends.len() {
                ends.push(0.0);
            }
            if let Some(end) = ends.get_mut(row) {
                *end = begin + width;
            }
            Event { mark, row }
        };
        recording.marks.iter().filter(is_wanted).map(place).collect()
    }

    fn draw_events(&self, svg: &mut String, events: &[Event<'_>], bottom: f64) {
        for Event { mark, row } in events {
            let x = self.x(mark.at);
            let color = match mark.source {
                Source::Scenario => "#000000",
                Source::Server(_) => "#8d6e63",
                Source::Proxy(_) => "#00838f",
            };
            let y = TITLE + *row as f64 * EVENT_ROW;
            let dash = if mark.source == Source::Scenario { "" } else { " stroke-dasharray=\"3 3\"" };
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {y:.1}V{bottom:.1}\" stroke=\"{color}\" stroke-width=\"0.8\"{dash}/>"
            );
            if *row >= EVENT_ROWS {
                continue;
            }
            let text = label(mark);
            let is_far = x + text.chars().count() as f64 * 6.0 + 10.0 > WIDTH;
            let (at, anchor) = if is_far { (x - 3.0, " text-anchor=\"end\"") } else { (x + 3.0, "") };
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" fill=\"{color}\"{anchor}>{}</text>",
                y + 10.0,
                escaped(&text)
            );
        }
    }

    /// Seconds from the first event on.
    fn axis(&self, svg: &mut String, top: f64) {
        let span_s = self.to.ms_since(self.from) / 1000.0;
        let step = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0].into_iter().find(|step| span_s / step <= 20.0);
        let step = step.unwrap_or(60.0);
        let first = -(self.event.ms_since(self.from) / 1000.0 / step).floor() as i64;
        for n in first.. {
            let seconds = n as f64 * step;
            let ms = self.event.ms_since(self.from) + seconds * 1000.0;
            if ms > span_s * 1000.0 {
                break;
            }
            let x = self.x(self.from.plus_ms(ms.max(0.0) as u64));
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {top:.1}v5\" stroke=\"#444\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                top + 18.0,
                if step < 1.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
            );
        }
    }
}

/// Of what servers and proxies say only what decides; the rest is in their logs.
fn is_shown(mark: &Mark) -> bool {
    let text = &mark.text;
    match mark.source {
        Source::Scenario => true,
        Source::Server(_) => {
            text.starts_with(VIEW) || text.starts_with(LOST_QUORUM) || text.starts_with(SYNCED)
        }
        Source::Proxy(_) => {
            is_new_writer(text) || text.starts_with("lost the writer") || text.starts_with("the hold")
        }
    }
}

fn label(mark: &Mark) -> String {
    match mark.source {
        Source::Scenario => mark.text.clone(),
        Source::Server(index) => format!("n{index}: {}", mark.text),
        Source::Proxy(index) => {
            // "hostgroup 100 127.0.0.52:3306: writer: reason": the group is the same everywhere.
            let words = mark.text.strip_prefix("hostgroup ").and_then(|rest| rest.split_once(' '));
            let text: String = words.map_or(mark.text.as_str(), |(_, rest)| rest).chars().take(60).collect();
            format!("weir {index}: {text}")
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::example;

    #[test]
    fn the_picture_has_lanes_events_and_errors() {
        let svg = plot(&example(), "SIGKILL of <the writer>");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        for part in [
            "SIGKILL of &lt;the writer&gt;",
            ">SIGKILL of n1<",
            ">unknown: 1<",
            ">writes<",
            ">reads<",
            ">0.0 s<",
        ] {
            assert!(svg.contains(part), "{part} is missing in\n{svg}");
        }
        // Everything stays within the picture.
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn labels_that_would_overlap_get_rows_of_their_own() {
        let mut recording = example();
        let event = recording.event();
        for n in 0..3 {
            let text = format!("event {n}");
            recording.marks.push(Mark { at: event.plus_ms(n), text, source: Source::Scenario });
        }
        let frame = Frame::of(&recording);
        let rows: Vec<usize> = frame.events(&recording).iter().map(|event| event.row).collect();
        assert!(rows.iter().max() >= Some(&2), "{rows:?}");
    }

    #[test]
    fn an_empty_recording_is_a_picture_too() {
        assert!(plot(&Recording::default(), "nothing").contains("nothing"));
    }
}
