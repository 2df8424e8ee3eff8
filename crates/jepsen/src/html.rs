//! Writes the report as one page that needs nothing else.

use std::fmt::Write as _;

use weir_lab::report::capitalised;

use crate::guard::WITHOUT_SWITCH;
use crate::judge::Verdict;
use crate::report::{Report, history_name, title};

const STYLE: &str = "body{font:14px sans-serif;max-width:1150px;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:2px 8px;text-align:left;\
    vertical-align:top}pre{background:#f4f4f4;padding:8px;overflow-x:auto;font-size:12px}.wrong{color:#b00020;\
    font-weight:bold}.good{color:#2e7d32}";

/// The page.
pub(crate) fn page(report: &Report<'_>) -> String {
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Weir: make jepsen</title>\
         <style>{STYLE}</style></head><body>\n<h1>Weir: histories of transactions</h1>\n"
    );
    if let Some(machine) = &report.machine {
        let _ = writeln!(text, "<p>{}</p>", escaped(&machine.to_string()));
    }
    let word = match report.is_good() {
        true => "<p class=\"good\">No anomaly that was not to be expected.</p>",
        false => "<p class=\"wrong\">Something was missed: see below.</p>",
    };
    text.push_str(word);
    text.push_str(&table(&report.table()));
    for (number, verdict) in (1..).zip(&report.verdicts) {
        run(&mut text, number, verdict);
    }
    if report.verdicts.iter().any(|verdict| verdict.setup.guard.is_some()) {
        text.push_str("<h2>Guards that no setting switches off: not tested</h2>\n<ul>\n");
        for (guard, anomalies) in WITHOUT_SWITCH {
            let _ = writeln!(text, "<li>{}: {}</li>", escaped(guard), escaped(anomalies));
        }
        text.push_str("</ul>\n");
    }
    for (place, why) in &report.not_run {
        let _ = writeln!(text, "<p>{}: not run: {}</p>", capitalised(&place.to_string()), escaped(why));
    }
    text.push_str("</body></html>\n");
    text
}

fn run(text: &mut String, number: usize, verdict: &Verdict) {
    let setup = &verdict.setup;
    let _ = writeln!(text, "<h2>Run {number}: {}</h2>", escaped(&title(verdict)));
    let faults: Vec<String> = setup.faults.iter().map(ToString::to_string).collect();
    let _ = writeln!(
        text,
        "<p>{} s, isolation {}, faults: {}</p>",
        setup.time.as_secs(),
        setup.isolation,
        if faults.is_empty() { "none".to_owned() } else { faults.join(", ") }
    );
    if let Some(guard) = setup.guard {
        let found = verdict.guard_found(guard);
        let _ = writeln!(
            text,
            "<p>Switched off: {}. Found: {}</p>",
            escaped(guard.title()),
            if found.is_empty() { "nothing".to_owned() } else { escaped(&found.join(", ")) }
        );
    }
    for missed in verdict.missed() {
        let _ = writeln!(text, "<p class=\"wrong\">Missed: {}</p>", escaped(&missed));
    }
    text.push_str(&verdict.timeline);
    text.push_str("<p>Blue: acknowledged, amber: failed, purple: unknown; per second, shaded while a fault lasts.</p>\n");
    for (judged, (anomaly, lines)) in
        verdict.workloads.iter().flat_map(|judged| judged.shown.iter().map(move |shown| (judged, shown)))
    {
        let _ = writeln!(
            text,
            "<h3>{}: {}</h3>\n<p>{} (<a href=\"{}\">the whole history</a>)</p>\n<pre>{}</pre>",
            judged.workload,
            anomaly.class,
            escaped(&anomaly.explanation),
            history_name(number, judged),
            escaped(&lines.join("\n"))
        );
    }
    for judged in &verdict.workloads {
        for undecided in &judged.findings.undecided {
            let _ = writeln!(text, "<p>{}: undecided: {}</p>", judged.workload, escaped(undecided));
        }
    }
    details(text, verdict);
}

/// Faults, errors, memory.
fn details(text: &mut String, verdict: &Verdict) {
    let first = verdict.marks.first().map_or(0, |mark| mark.from_ns);
    let seconds = |ns: u64| format!("{:.1}", (ns - first) as f64 / 1e9);
    let mut rows = vec![["from s", "to s", "fault", ""].map(str::to_owned).to_vec()];
    rows.extend(verdict.marks.iter().map(|mark| {
        vec![seconds(mark.from_ns), seconds(mark.to_ns), mark.fault.to_string(), mark.text.clone()]
    }));
    let _ = writeln!(text, "<details><summary>{} faults</summary>{}</details>", rows.len() - 1, table(&rows));
    let mut rows = vec![["times", "error"].map(str::to_owned).to_vec()];
    rows.extend(verdict.texts.iter().map(|(error, times)| vec![times.to_string(), error.clone()]));
    let _ = writeln!(
        text,
        "<details><summary>{} kinds of errors</summary>{}</details>",
        rows.len() - 1,
        table(&rows)
    );
    for (k, kib) in (1..).zip(&verdict.rss_kib) {
        if let (Some(first), Some(most), Some(last)) = (kib.first(), kib.iter().max(), kib.last()) {
            let _ = writeln!(
                text,
                "<p>Memory of Weir {k}: {first} KiB at first, {most} at most, {last} in the end.</p>"
            );
        }
    }
}

fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::from("<table>\n");
    for (n, row) in rows.iter().enumerate() {
        let tag = if n == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        let _ = writeln!(text, "<tr>{cells}</tr>");
    }
    text.push_str("</table>\n");
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
