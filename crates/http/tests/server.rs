//! The server, as a client sees it.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_http::{Access, Account, Family, Http, HttpSockets, Options, Page, Readiness, Source};

/// Says what it is asked, and is ill if it is to be.
struct Fake {
    obstacles: Vec<String>,
}

impl Source for Fake {
    fn ailments(&self) -> Vec<String> {
        Vec::new()
    }

    fn readiness(&self, hostgroup: Option<u32>) -> Readiness {
        match (hostgroup, self.obstacles.as_slice()) {
            (Some(7), _) => Readiness::Unknown,
            (Some(8), obstacles) => Readiness::Ready(obstacles.to_vec()),
            (_, []) => Readiness::Ready(Vec::new()),
            (_, obstacles) => Readiness::NotReady(obstacles.to_vec()),
        }
    }

    fn metrics(&self) -> Vec<Family> {
        assert!(self.obstacles.len() < 2, "a source that fails");
        vec![Family::counter("proxysql_questions", "Statements.").with(&[], 7)]
    }

    fn page(&self, page: Page, rows_max: usize) -> Value {
        json!({ "page": format!("{page:?}"), "rows": rows_max })
    }
}

fn options() -> Options {
    let account =
        Account { username: "stats".to_owned(), password: "secret".to_owned(), is_well_known: false };
    Options {
        addresses: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        access: Access {
            accounts: vec![account],
            token: Some("t0ken".to_owned()),
            metrics_are_public: false,
        },
    }
}

fn start(obstacles: &[&str]) -> (Http, SocketAddr) {
    let source = Fake { obstacles: obstacles.iter().map(|&text| text.to_owned()).collect() };
    let sockets = HttpSockets::open(&options().addresses, Vec::new()).unwrap();
    let http = Http::start(options(), sockets, Arc::new(source)).unwrap();
    let address = http.addresses().next().unwrap();
    (http, address)
}

/// The status, the head and the body of the answer to a request with these header lines.
fn ask(address: SocketAddr, method: &str, path: &str, headers: &[&str]) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n");
    for header in headers {
        request += &format!("{header}\r\n");
    }
    stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    read_answer(&mut stream)
}

fn read_answer(stream: &mut TcpStream) -> (u16, String, String) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head.to_lowercase(), body.to_owned())
}

/// `stats:secret`
const PASSWORD: &str = "Authorization: Basic c3RhdHM6c2VjcmV0";

#[test]
fn health_is_everybodys_and_the_rest_is_not() {
    let (_http, address) = start(&[]);
    assert_eq!(ask(address, "GET", "/healthz", &[]).2, "ok\n");
    assert_eq!(ask(address, "GET", "/readyz", &[]).2, "ready\n");
    for path in ["/metrics", "/api/v1/status", "/api/v1/digests?limit=1"] {
        let (status, head, body) = ask(address, "GET", path, &[]);
        assert_eq!(status, 401, "{path}");
        assert!(head.contains("www-authenticate: basic realm=\"weir\"") && body.contains("error"), "{head}");
        let (status, head, _) = ask(address, "GET", path, &[PASSWORD]);
        assert!(status == 200 && head.contains("cache-control: no-store"), "{path}: {head}");
        assert_eq!(ask(address, "GET", path, &["Authorization: Bearer t0ken"]).0, 200, "{path}");
        assert_eq!(ask(address, "GET", path, &["Authorization: Bearer t0ker"]).0, 401, "{path}");
    }
}

#[test]
fn who_is_not_ready_says_why() {
    let (_http, address) = start(&["hostgroup 100 has no writer"]);
    assert_eq!(ask(address, "GET", "/healthz", &[]).0, 200);
    let (status, _, body) = ask(address, "GET", "/readyz", &[]);
    assert_eq!((status, body.as_str()), (503, "not ready\nhostgroup 100 has no writer\n"));
    let (status, _, body) = ask(address, "GET", "/readyz?hostgroup=8", &[]);
    assert_eq!((status, body.as_str()), (200, "ready\nhostgroup 100 has no writer\n"));
    assert_eq!(ask(address, "GET", "/readyz?hostgroup=7", &[]).0, 404);
    assert_eq!(ask(address, "GET", "/readyz?hostgroup=ten", &[]).0, 400);
}

#[test]
fn metrics_come_in_the_format_that_was_asked_for() {
    let (_http, address) = start(&[]);
    let (_, head, body) = ask(address, "GET", "/metrics", &[PASSWORD]);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("# TYPE proxysql_questions_total counter\nproxysql_questions_total 7\n"), "{body}");
    let open = "Accept: application/openmetrics-text; version=1.0.0";
    let (_, head, body) = ask(address, "GET", "/metrics", &[PASSWORD, open]);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("# TYPE proxysql_questions counter\n") && body.ends_with("# EOF\n"), "{body}");
}

#[test]
fn pages_and_their_limits() {
    let (_http, address) = start(&[]);
    let page = |path: &str| ask(address, "GET", path, &[PASSWORD]);
    let (_, head, body) = page("/api/v1/digests?limit=5");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), json!({ "page": "Digests", "rows": 5 }));
    assert_eq!(page("/api/v1/topology").2, "{\"page\":\"Topology\",\"rows\":100}\n");
    assert_eq!(page("/api/v1/processlist?limit=0").0, 400);
    assert_eq!(page("/api/v1/nothing").0, 404);
    assert_eq!(ask(address, "POST", "/api/v1/status", &[PASSWORD, "Content-Length: 0"]).0, 405);
    assert!(ask(address, "GET", "/", &[]).2.contains("/healthz"));
}

#[test]
fn a_source_that_fails_harms_one_answer() {
    let (_http, address) = start(&["one", "two"]);
    assert_eq!(ask(address, "GET", "/metrics", &[PASSWORD]).0, 500);
    assert_eq!(ask(address, "GET", "/api/v1/status", &[PASSWORD]).0, 200);
}

#[test]
fn hostile_requests_are_refused() {
    let (_http, address) = start(&[]);
    let long = format!("X: {}", "y".repeat(64 << 10));
    for garbage in [&b"\0\0\0\x01\x85\xa6"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A reset is as good an answer as an error.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    }
    let mut stream = TcpStream::connect(address).unwrap();
    // It may be closed before all is written.
    let _ = stream.write_all(format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{long}\r\n\r\n").as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(ask(address, "GET", "/healthz", &[]).0, 200, "and the others don't notice");
}

#[test]
fn other_options_while_it_runs() {
    let (mut http, first) = start(&[]);
    let mut next = options();
    next.access.metrics_are_public = true;
    next.access.token = None;
    http.apply(next.clone()).unwrap();
    // The change is taken before the next connection.
    let public = || ask(first, "GET", "/metrics", &[]).0;
    wait_until(|| public() == 200);
    assert_eq!(ask(first, "GET", "/api/v1/status", &["Authorization: Bearer t0ken"]).0, 401);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut impossible = next.clone();
    impossible.addresses.push(taken.local_addr().unwrap());
    let error = http.apply(impossible).unwrap_err().to_string();
    assert!(error.starts_with("can't listen for HTTP on 127.0.0.1:"), "{error}");
    assert_eq!(public(), 200, "nothing has changed");

    next.addresses.clear();
    http.apply(next).unwrap();
    wait_until(|| TcpStream::connect(first).is_err());
    assert_eq!(http.addresses().count(), 0);
}

#[test]
fn sockets_change_hands_and_everybody_gets_an_answer() {
    let (mut first, address) = start(&[]);
    let get = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"ok\n") && stream.read(&mut byte).unwrap() == 1 {
            answer.extend(byte);
        }
        String::from_utf8(answer).unwrap().to_lowercase()
    };
    let (mut idle, mut new) = (TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap());
    assert!(!get(&mut idle).contains("connection: close"));
    let handed = first.takeover_sockets().unwrap();
    let sockets = HttpSockets::open(&options().addresses, handed).unwrap();
    let finish = first.let_go();
    // Who had come before is told to come again after its answer; who is waiting for nothing is let go.
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    let answer = get(&mut new);
    assert!(answer.contains("200 ok") && answer.contains("connection: close"), "{answer}");
    assert_eq!(new.read(&mut [0]).unwrap(), 0);
    finish.wait(Duration::from_secs(3600));
    drop(first);
    // It waits until somebody serves it.
    let mut late = TcpStream::connect(address).unwrap();
    let source = Fake { obstacles: Vec::new() };
    let second = Http::start(options(), sockets, Arc::new(source)).unwrap();
    assert_eq!(second.addresses().collect::<Vec<_>>(), [address]);
    assert!(get(&mut late).contains("200 ok"));
}

#[test]
fn dropping_it_ends_it() {
    let (http, address) = start(&[]);
    drop(http);
    wait_until(|| TcpStream::connect(address).is_err());
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("not within a minute");
}
