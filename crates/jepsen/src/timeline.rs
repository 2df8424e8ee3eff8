//! Draws a run: transactions per second, and what happened to servers and Weirs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_jepsen::checker::{History, Kind};

use crate::run::Mark;
use crate::workload::Workload;

const WIDTH: f64 = 1100.0;
const LEFT: f64 = 90.0;
const LANE: f64 = 60.0;
const GAP: f64 = 16.0;
const TOP: f64 = 34.0;
/// Bars of a lane at most.
const BUCKETS_MAX: u64 = 240;

/// The picture as an SVG element.
pub(crate) fn draw(histories: &BTreeMap<Workload, History>, marks: &[Mark]) -> String {
    let times =
        || histories.values().flat_map(|history| &history.entries).filter(|e| !e.is_final).map(|e| e.at_ns);
    let (Some(from), Some(to)) = (times().min(), times().max()) else { return String::new() };
    let span = (to - from).max(1);
    let bucket = (span / BUCKETS_MAX).max(1_000_000_000);
    let x = |ns: u64| LEFT + ns.saturating_sub(from).min(span) as f64 / span as f64 * (WIDTH - LEFT);
    let height = TOP + histories.len() as f64 * (LANE + GAP) + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"10\">\n"
    );
    for (n, mark) in marks.iter().enumerate() {
        let (begin, end) = (x(mark.from_ns), x(mark.to_ns));
        let (width, label) = ((end - begin).max(1.0), 10.0 + (n % 2) as f64 * 11.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{begin:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"#fbe3d6\"/>\
             <text x=\"{begin:.1}\" y=\"{label}\">{}</text>",
            height - TOP - 20.0,
            mark.fault
        );
    }
    for (n, (workload, history)) in histories.iter().enumerate() {
        let base = TOP + n as f64 * (LANE + GAP) + LANE;
        lane(&mut svg, history, from, bucket, base, &x);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{workload}</text>",
            LEFT - 6.0,
            base - LANE / 2.0
        );
    }
    for tick in 0..=10 {
        let at = from + span / 10 * tick;
        let seconds = (at - from) as f64 / 1e9;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{seconds:.0} s</text>",
            x(at).clamp(LEFT, WIDTH - 14.0),
            height - 6.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Bars: acknowledged ones, failed ones and unknown ones above each other.
fn lane(svg: &mut String, history: &History, from: u64, bucket: u64, base: f64, x: &impl Fn(u64) -> f64) {
    let mut buckets: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    for entry in history.entries.iter().filter(|entry| !entry.is_final) {
        let at = match entry.kind {
            Kind::Invoke => continue,
            Kind::Ok => 0,
            Kind::Fail => 1,
            Kind::Info => 2,
        };
        if let Some(count) = buckets.entry((entry.at_ns - from) / bucket).or_default().get_mut(at) {
            *count += 1;
        }
    }
    let most = buckets.values().map(|counts| counts.iter().sum::<u64>()).max().unwrap_or(0).max(1);
    for (at, counts) in buckets {
        let (begin, end) = (x(from + at * bucket), x(from + (at + 1) * bucket));
        let mut y = base;
        for (count, color) in counts.into_iter().zip(["#4a90c2", "#e0a030", "#8e24aa"]) {
            if count > 0 {
                let tall = (count as f64 / most as f64 * LANE).max(1.0);
                y -= tall;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{begin:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" fill=\"{color}\"/>",
                    (end - begin - 0.5).max(0.5)
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_jepsen::checker::Op;

    use super::*;
    use crate::nemesis::Fault;

    #[test]
    fn the_picture_has_lanes_and_faults_and_stays_finite() {
        let mut history = History::default();
        for n in 0..50 {
            let at = n * 200_000_000;
            history.push(
                n,
                at,
                at + 1000,
                if n % 7 == 0 { Kind::Info } else { Kind::Ok },
                vec![Op::Add { value: n }],
            );
        }
        let mark =
            Mark { from_ns: 1_000_000_000, to_ns: 3_000_000_000, fault: Fault::Kill, text: String::new() };
        let svg = draw(&[(Workload::Set, history)].into(), &[mark]);
        assert!(svg.contains(">kill<") && svg.contains(">set<") && svg.contains("#8e24aa"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(draw(&BTreeMap::new(), &[]).is_empty());
    }
}
