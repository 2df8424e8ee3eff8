//! Draws the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};

use crate::app::{App, Pane};
use crate::lines::{Column, Line, Urgency, columns, lines};
use crate::number_format::{number, time, uptime, whole};

const KEYS: &str = " q quit  Tab pane  s sort  r reverse  / filter  p pause  z zoom  arrows scroll  h help";

const HELP: [&str; 17] = [
    "Tab, 1 2 3   the pane that keys act on",
    "s, r         sort by the next column; reverse",
    "arrows       scroll; PgUp, PgDn, Home",
    "z, Enter     enlarge the pane, and back",
    "/            filter rows by a text; Esc removes it",
    "p, Space     pause",
    "q, Esc       quit",
    "",
    "Q/S, LOAD and AVG are of the time since the last picture,",
    "P95 and COUNT since Weir was started. LOAD is how many such",
    "statements ran at a time.",
    "LAG: how old what a server certainly has is.",
    "PINS: why a session keeps its connection, so that nobody",
    "else can use it meanwhile.",
    "",
    "Yellow: writers, pinned sessions. Red: out of service.",
    "Any key goes back.",
];

/// Lines about clusters above the panes.
const HEAD_LINES_MAX: usize = 6;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &App) {
    let clusters = cluster_lines(app);
    let head = 1 + clusters.len().min(HEAD_LINES_MAX) as u16;
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(head), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    let mut text = vec![summary(app)];
    text.extend(clusters.into_iter().take(HEAD_LINES_MAX));
    frame.render_widget(Paragraph::new(text), top);
    draw_panes(frame, app, middle);
    frame.render_widget(footer(app), bottom);
    if app.shows_help {
        draw_help(frame, middle);
    }
}

fn summary(app: &App) -> TextLine<'static> {
    let now = &app.rates.now;
    let per_s = app.rates.questions_per_s.map_or_else(|| "-".to_owned(), number);
    let mut spans = vec![
        Span::from(format!("weir {}", now.version)).bold(),
        Span::from(format!("  up {}  {per_s} q/s", uptime(now.at_ms))),
        Span::from(format!(
            "  {} clients ({} busy, {} in trx)  {} conns",
            whole(now.clients),
            whole(now.busy),
            whole(now.transactions),
            whole(now.server_connections),
        )),
    ];
    if app.is_paused {
        spans.push(Span::from("  PAUSED").fg(Color::Yellow).bold());
    }
    TextLine::from(spans)
}

fn cluster_lines(app: &App) -> Vec<TextLine<'static>> {
    let line = |cluster: &crate::Cluster| {
        let of = format!("cluster of hostgroup {}: ", cluster.writer_hostgroup);
        let writers = match cluster.writers.as_slice() {
            [] => "no writer".to_owned(),
            writers => format!("writer {}", writers.join(", ")),
        };
        match &cluster.trouble {
            Some(why) => TextLine::from(format!("{of}{writers}: {why}")).fg(Color::Red),
            None if cluster.writers.is_empty() => TextLine::from(format!("{of}{writers}")).fg(Color::Red),
            None => TextLine::from(format!("{of}{writers}")),
        }
    };
    app.rates
        .now
        .clusters
        .iter()
        .flat_map(|cluster| [Some(line(cluster)), reads_line(app, cluster)])
        .flatten()
        .collect()
}

/// How reads that might go to a reader came to be fresh enough.
fn reads_line(app: &App, cluster: &crate::Cluster) -> Option<TextLine<'static>> {
    let reads = cluster.reads.as_ref()?;
    let rates = app.rates.reads.get(&cluster.writer_hostgroup).copied().unwrap_or_default();
    let half = if reads.waited > 0 { Some(reads.wait_p50_us as f64) } else { None };
    let line = TextLine::from(format!(
        "  reads/s: {} at once, {} waited (half {}), {} on writer, {} timed out",
        number(rates.at_once),
        number(rates.waited),
        time(half),
        number(rates.on_writer),
        number(rates.timed_out)
    ));
    Some(if rates.timed_out > 0.0 { line.fg(Color::Yellow) } else { line })
}

fn footer(app: &App) -> Paragraph<'static> {
    if app.is_typing {
        return Paragraph::new(format!(" filter: {}_   Enter keeps it, Esc ends it", app.filter)).bold();
    }
    if let Some(trouble) = &app.trouble {
        return Paragraph::new(format!(" no answer: {trouble}")).fg(Color::Red);
    }
    Paragraph::new(KEYS).dim()
}

fn draw_panes(frame: &mut Frame<'_>, app: &App, area: Rect) {
    if app.is_zoomed {
        return draw_pane(frame, app, app.focus, &lines(app, app.focus), area);
    }
    let all = Pane::ALL.map(|pane| lines(app, pane));
    let heights = heights([all[0].len(), all[1].len(), all[2].len()], area.height);
    let areas: [Rect; 3] = Layout::vertical(heights.map(Constraint::Length)).areas(area);
    for ((pane, lines), area) in Pane::ALL.into_iter().zip(&all).zip(areas) {
        draw_pane(frame, app, pane, lines, area);
    }
}

/// Lines for each pane: title, header and rows. Servers get what they need up to half of the screen; digests and
/// sessions share the rest, and what one does not need is the other's.
fn heights(rows: [usize; 3], height: u16) -> [u16; 3] {
    const HEAD: u16 = 2;
    let needed = rows.map(|rows| HEAD + u16::try_from(rows.max(1)).unwrap_or(u16::MAX - HEAD));
    let servers = needed[0].min((height / 2).max(HEAD + 1)).min(height);
    let rest = height - servers;
    let digests = needed[1].min(rest.div_ceil(2)).max(rest.saturating_sub(needed[2])).min(rest);
    [servers, digests, rest - digests]
}

fn draw_pane(frame: &mut Frame<'_>, app: &App, pane: Pane, lines: &[Line], area: Rect) {
    let [title, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let name = match pane {
        Pane::Servers => "Servers",
        Pane::Digests => "Statements",
        Pane::Sessions => "Sessions",
    };
    let sort = app.sorts[pane as usize];
    let order = pane.orders().get(sort.by).copied().unwrap_or_default();
    let reversed = if sort.is_reversed { ", reversed" } else { "" };
    let filter = if app.filter.is_empty() { String::new() } else { format!(", with \"{}\"", app.filter) };
    let focus = if pane == app.focus { ">" } else { " " };
    let text = format!("{focus}{name} ({}) by {order}{reversed}{filter}", lines.len());
    let style = if pane == app.focus { Style::new().reversed().bold() } else { Style::new().reversed() };
    frame.render_widget(Paragraph::new(text).style(style), title);
    let rows = usize::from(body.height.saturating_sub(1));
    let first = app.scrolled[pane as usize].min(lines.len().saturating_sub(rows));
    let shown = lines.iter().skip(first).take(rows);
    frame.render_widget(table(columns(pane), shown), body);
}

fn table<'a>(columns: &'a [Column], lines: impl Iterator<Item = &'a Line>) -> Table<'a> {
    let cell = |text: &'a str, is_number: bool| {
        let line = TextLine::from(text);
        Cell::from(if is_number { line.right_aligned() } else { line })
    };
    let header = columns.iter().map(|Column(title, _, is_number)| cell(title, *is_number));
    let row = |line: &'a Line| {
        let cells =
            line.cells.iter().zip(columns).map(|(text, Column(.., is_number))| cell(text, *is_number));
        Row::new(cells).style(style(line.urgency))
    };
    let width = |Column(_, width, _): &Column| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(*width),
    };
    let header = Row::new(header).style(Style::new().add_modifier(Modifier::BOLD));
    Table::new(lines.map(row), columns.iter().map(width)).header(header).column_spacing(1)
}

fn style(urgency: Urgency) -> Style {
    match urgency {
        Urgency::Usual => Style::new(),
        Urgency::Quiet => Style::new().add_modifier(Modifier::DIM),
        Urgency::Notable => Style::new().fg(Color::Yellow),
        Urgency::Bad => Style::new().fg(Color::Red),
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (64.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let text: Vec<TextLine<'_>> = HELP.iter().map(|line| TextLine::from(*line)).collect();
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(" weir top ")), place);
}

#[cfg(test)]
mod tests;
