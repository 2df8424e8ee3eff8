//! Checks the pictures that a user sees.

use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::*;
use crate::app::Outcome;
use crate::terminal::picture;
use crate::{Cluster, Digest, Reads, Server, Session, TopData};

fn server(hostgroup: u32, host: u8, role: &str, status: &str, queries: u64) -> Server {
    Server {
        hostgroup,
        server: format!("10.0.0.{host}:3306"),
        role: role.to_owned(),
        status: status.to_owned(),
        reason: if status == "ONLINE" { "chosen".to_owned() } else { "not answering".to_owned() },
        used: 3,
        free: 7,
        queries,
        sum_us: queries * 250,
        p95_us: 800,
        lag_us: (role == "reader" && status == "ONLINE").then_some(4_200),
        unchecked: String::new(),
    }
}

fn digest(text: &str, count: u64, each_us: u64) -> Digest {
    Digest {
        digest: format!("0x{each_us:016X}"),
        hostgroup: 100,
        username: "app".to_owned(),
        count,
        sum_us: count * each_us,
        p95_us: each_us * 2,
        text: text.to_owned(),
        ..Digest::default()
    }
}

fn session(id: u32, is_busy: bool, since_ms: u64, pins: &str) -> Session {
    Session {
        id,
        username: "app".to_owned(),
        client: format!("10.1.0.{id}"),
        hostgroup: is_busy.then_some(100),
        command: if is_busy { "Query" } else { "Sleep" }.to_owned(),
        is_busy,
        since_ms,
        pins: pins.to_owned(),
        text: if is_busy { "SELECT c\n\u{1b}[2J FROM t".to_owned() } else { String::new() },
        ..Session::default()
    }
}

fn data(at_ms: u64, times: u64) -> TopData {
    TopData {
        version: "0.1.0".to_owned(),
        at_ms,
        clients: 12_345,
        busy: 2,
        transactions: 1,
        server_connections: 20,
        questions: 1000 * times,
        clusters: vec![
            Cluster {
                writer_hostgroup: 100,
                writers: vec!["10.0.0.1:3306".to_owned()],
                trouble: None,
                reads: Some(Reads {
                    at_once: 900 * times,
                    waited: 20 * times,
                    on_writer: 4 * times,
                    timed_out: times / 3,
                    wait_p50_us: 850,
                }),
            },
            Cluster {
                writer_hostgroup: 200,
                writers: vec![],
                trouble: Some("lost 10.0.0.9:3306, statements wait for the next one".to_owned()),
                reads: None,
            },
        ],
        servers: vec![
            server(102, 2, "reader", "ONLINE", 900 * times),
            server(100, 1, "writer", "ONLINE", 100 * times),
            server(102, 3, "reader", "SHUNNED", 5),
        ],
        digests: vec![
            digest("SELECT c FROM sbtest1 WHERE id=?", 900 * times, 200),
            digest("UPDATE sbtest1 SET k=k+? WHERE id=?", 99 * times, 3000),
            digest("CREATE TABLE sbtest1 (id INT)", 1, 700_000),
        ],
        sessions: vec![
            session(7, false, 61_000, ""),
            session(8, true, 12, ""),
            session(9, false, 3000, "transaction"),
        ],
    }
}

fn app() -> App {
    let mut app = App::default();
    app.take(data(3_600_000, 1));
    app.take(data(3_602_000, 3));
    app
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        assert_eq!(app.press(KeyEvent::from(code)), Outcome::Stay, "{key:?}");
    }
}

#[test]
fn eighty_columns_and_24_lines() {
    insta::assert_snapshot!(picture(&app(), 80, 24));
}

#[test]
fn a_wide_terminal() {
    insta::assert_snapshot!(picture(&app(), 140, 30));
}

#[test]
fn keys_sort_filter_pause_and_zoom() {
    let mut app = app();
    press(&mut app, "1srp/SHUN\n");
    app.take(data(3_604_000, 9));
    insta::assert_snapshot!("filtered", picture(&app, 80, 24));
    press(&mut app, "\u{1b}p3sz");
    insta::assert_snapshot!("zoomed", picture(&app, 80, 12));
    assert_eq!(app.press(KeyEvent::from(KeyCode::Esc)), Outcome::Quit);
}

#[test]
fn help_and_trouble() {
    let mut app = app();
    app.miss("/var/lib/weir/weir.sock: no weir answers there".to_owned());
    press(&mut app, "h");
    insta::assert_snapshot!(picture(&app, 80, 24));
}

#[test]
fn no_size_is_too_small_and_no_scrolling_too_far() {
    let mut app = app();
    for _ in 0..20 {
        app.press(KeyEvent::from(KeyCode::PageDown));
    }
    for (columns, lines) in [(1, 1), (10, 3), (80, 4), (80, 8), (300, 2)] {
        picture(&app, columns, lines);
    }
    app.shows_help = true;
    picture(&app, 5, 5);
}

#[test]
fn no_pane_is_larger_than_its_rows_where_another_has_need() {
    assert_eq!(heights([3, 100, 100], 21), [5, 8, 8]);
    assert_eq!(heights([3, 2, 100], 21), [5, 4, 12]);
    assert_eq!(heights([3, 100, 1], 21), [5, 13, 3]);
    assert_eq!(heights([100, 100, 100], 21), [10, 6, 5]);
    assert_eq!(heights([0, 0, 0], 2), [2, 0, 0]);
}
