//! Checks where servers' names lead, while lookups answer, change and fail.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use weir_client::Address;

use super::*;

/// A configuration with these servers.
pub(crate) fn config(servers: &[&str]) -> Config {
    let rows = servers.iter().map(|server| {
        let endpoint: Endpoint = server.parse().unwrap();
        format!(
            "[[mysql_servers]]\nhostgroup_id = 1\nhostname = \"{}\"\nport = {}\n",
            endpoint.host, endpoint.port
        )
    });
    weir_config::parse(&rows.collect::<String>(), "test.toml").unwrap()
}

/// Names by this resolver; whatever address it gives answers.
pub(crate) fn names(resolver: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Names {
    Names::by(Arc::new(resolver), Arc::new(|_| true))
}

/// Knows `db1`; never answers for names that begin with "slow".
fn fake() -> Names {
    names(|host| match host {
        "db1" => Ok(vec![[10, 0, 0, 1].into()]),
        host if host.starts_with("slow") => loop {
            std::thread::park();
        },
        _ => Err(io::Error::other("no such name")),
    })
}

fn endpoint(text: &str) -> Endpoint {
    text.parse().unwrap()
}

/// What is known after a look at most so long.
fn known(names: &Names, config: &Config, limit: Duration) -> ServerAddresses {
    names.look_up(config, limit);
    names.known(config, &ServerAddresses::new())
}

#[test]
fn every_server_has_its_address_and_port() {
    let config = config(&["db1:3306", "db1:3307", "127.0.0.9:4000", "[::1]:4001"]);
    let known = known(&fake(), &config, LIMIT);
    let address = |text: &str| known[&endpoint(text)].at.unwrap().to_string();
    assert_eq!(address("db1:3306"), "10.0.0.1:3306");
    assert_eq!(address("db1:3307"), "10.0.0.1:3307");
    assert_eq!(address("127.0.0.9:4000"), "127.0.0.9:4000");
    assert_eq!(address("[::1]:4001"), "[::1]:4001");
    assert!(known.len() == 4 && known.values().all(|known| known.fault.is_none()));
}

#[test]
fn a_name_that_means_nothing_or_takes_for_ever_is_the_fault_of_its_server_alone() {
    let config = config(&["db1:3306", "nobody:3306", "slow:3306"]);
    let known = known(&fake(), &config, Duration::from_millis(500));
    let trouble = |text: &str| trouble(&endpoint(text), &known[&endpoint(text)]);
    assert_eq!(trouble("db1:3306"), None);
    assert_eq!(
        trouble("nobody:3306").unwrap(),
        "mysql_servers: nobody:3306: name nobody does not resolve: no such name; it is tried again"
    );
    assert_eq!(
        trouble("slow:3306").unwrap(),
        "mysql_servers: slow:3306: name slow does not resolve: the resolver has not answered yet; it is tried again"
    );
    let nowhere = Address::Unresolved("no such name".into());
    assert_eq!(known[&endpoint("nobody:3306")].address(), nowhere);
}

#[test]
fn names_that_hang_don_t_hold_up_others() {
    let names = fake();
    let slow: Vec<String> = (0..40).map(|number| format!("slow{number}:3306")).collect();
    let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
    names.look_up(&config(&slow), Duration::ZERO);
    names.look_up(&config(&slow), Duration::ZERO);
    let known = known(&names, &config(&["db1:3306"]), Duration::from_secs(60));
    assert!(known[&endpoint("db1:3306")].at.is_some());
}

#[test]
fn a_known_server_stays_where_it_is_while_its_name_is_not_resolved() {
    let was = SocketAddr::from(([10, 0, 0, 7], 3306));
    let before = ServerAddresses::from([(endpoint("nobody:3306"), ServerAddress::fixed(was))]);
    let (names, config) = (fake(), config(&["nobody:3306", "db1:3306"]));
    assert_eq!(names.known(&config, &before)[&endpoint("nobody:3306")].at, Some(was), "not asked yet");
    names.look_up(&config, LIMIT);
    let known = names.known(&config, &before);
    assert_eq!(known[&endpoint("nobody:3306")].address(), Address::At(was));
    assert_eq!(
        trouble(&endpoint("nobody:3306"), &known[&endpoint("nobody:3306")]).unwrap(),
        "mysql_servers: nobody:3306: name nobody does not resolve: no such name; it stays at 10.0.0.7:3306"
    );
}

#[test]
fn of_several_addresses_the_first_that_answers_is_taken_and_kept() {
    let at = |host: u8| SocketAddr::from(([10, 0, 0, host], 3306));
    let answering = |hosts: &'static [u8]| -> Dialer {
        Arc::new(move |address| {
            hosts.iter().any(|host| address == SocketAddr::from(([10, 0, 0, *host], 3306)))
        })
    };
    let all = [at(1), at(2), at(3)];
    assert_eq!(choose(&all, None, false, &answering(&[2, 3])), Some(at(2)));
    assert_eq!(choose(&all, None, false, &answering(&[])), Some(at(1)), "none answers");
    assert_eq!(choose(&all, Some(at(3)), false, &answering(&[1, 2, 3])), Some(at(3)), "it is remembered");
    assert_eq!(choose(&all, Some(at(3)), true, &answering(&[1, 2, 3])), Some(at(3)), "it answers after all");
    assert_eq!(choose(&all, Some(at(3)), true, &answering(&[2])), Some(at(2)));
    assert_eq!(choose(&all, Some(at(3)), true, &answering(&[])), Some(at(3)));
    assert_eq!(choose(&all, Some(at(9)), false, &answering(&[3])), Some(at(3)), "the name means others now");
    assert_eq!(choose(&all[..1], Some(at(9)), false, &answering(&[])), Some(at(1)), "there is no choice");
    assert_eq!(choose(&[], Some(at(9)), false, &answering(&[9])), None);
}

/// The name of a server that does not answer is looked up long before its answer is old, again and again, and what is
/// different is told until it is followed.
#[test]
fn the_name_of_a_silent_server_is_looked_up_again() {
    let answers: Arc<Mutex<HashMap<&str, u8>>> =
        Arc::new(Mutex::new(HashMap::from([("db1", 1), ("db2", 2)])));
    let told = answers.clone();
    let names = names(move |host| Ok(vec![[10, 0, 0, told.lock().unwrap()[host]].into()]));
    let config = config(&["db1:3306", "db2:3306"]);
    let before = known(&names, &config, LIMIT);
    names.follow(&config, &before);
    let (news, inbox) = channel();
    names.watch(move || news.send(()).unwrap()).unwrap();
    *answers.lock().unwrap() = HashMap::from([("db1", 3), ("db2", 4)]);
    names.note_silent(BTreeSet::from([endpoint("db1:3306")]));
    inbox.recv_timeout(Duration::from_secs(60)).unwrap();
    let now = names.known(&config, &before);
    let at = |known: &ServerAddresses, server: &str| known[&endpoint(server)].at.unwrap().to_string();
    assert_eq!(at(&now, "db1:3306"), "10.0.0.3:3306");
    assert_eq!(at(&now, "db2:3306"), "10.0.0.2:3306", "it answers, and its name was looked up a moment ago");
    names.follow(&config, &now);
    assert_eq!(names.all(), now);
}

#[test]
fn what_is_told_of_a_server() {
    let db1 = endpoint("db1:3306");
    let at = |host: u8| ServerAddress::fixed(SocketAddr::from(([10, 0, 0, host], 3306)));
    let without = |known: ServerAddress| ServerAddress { fault: Some("no such name".into()), ..known };
    let news = |before: Option<&ServerAddress>, now: &ServerAddress| news(&db1, before, now);
    assert_eq!(news(None, &at(1)), None);
    assert_eq!(news(Some(&at(1)), &at(1)), None);
    assert_eq!(news(Some(&at(1)), &at(2)).unwrap(), "10.0.0.2:3306, was 10.0.0.1:3306");
    assert!(news(Some(&at(1)), &without(at(1))).unwrap().ends_with("it stays at 10.0.0.1:3306"));
    assert_eq!(news(Some(&without(at(1))), &without(at(1))), None, "once");
    assert_eq!(news(Some(&without(at(1))), &at(1)).unwrap(), "10.0.0.1:3306: the name resolves again");
    let nowhere = without(ServerAddress::default());
    assert!(news(None, &nowhere).unwrap().ends_with("it is tried again"));
    assert_eq!(news(Some(&nowhere), &at(1)).unwrap(), "10.0.0.1:3306: the name resolves again");
}
