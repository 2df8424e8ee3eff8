//! Where servers are: their names, looked up.
//!
//! The system's resolver may take half a minute for a name, and can't be interrupted. So threads of their own ask it, and
//! nobody waits for them longer than [`LIMIT`]; the main thread, which publishes roles, never does.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_config::Config;
use weir_topology::Endpoint;

/// How long all names of a configuration may take together. A resolver that asks its second server because the first
/// one is silent takes 5 s for each name (resolv.conf(5)).
const LIMIT: Duration = Duration::from_secs(20);
/// Names that are looked up at a time.
const THREADS_MAX: usize = 16;

/// Asks for a name's first address; the port is of no meaning.
pub(crate) type Resolver = Arc<dyn Fn(&str) -> io::Result<SocketAddr> + Send + Sync>;

/// Where the servers in force are.
pub(crate) type Known = HashMap<Endpoint, SocketAddr>;

/// What came of looking up all servers of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Vec<(Endpoint, Result<SocketAddr, String>)>);

/// A server whose name means no address.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("mysql_servers: {endpoint}: {cause}")]
pub(crate) struct Unresolved {
    endpoint: Endpoint,
    cause: String,
}

/// As the system resolves names: `/etc/hosts`, DNS.
pub(crate) fn system() -> Resolver {
    Arc::new(|host| {
        let mut found = (host, 0).to_socket_addrs()?;
        found.next().ok_or_else(|| io::Error::other("the name has no address"))
    })
}

impl Addresses {
    /// Looks up the servers of a configuration. Returns after [`LIMIT`] at the latest.
    pub(crate) fn look_up(config: &Config, resolver: &Resolver) -> Self {
        Self::look_up_within(config, resolver, LIMIT)
    }

    fn look_up_within(config: &Config, resolver: &Resolver, limit: Duration) -> Self {
        let endpoints: BTreeSet<Endpoint> = config.servers.iter().map(|server| server.endpoint()).collect();
        let names = endpoints.iter().map(|endpoint| &*endpoint.host);
        let names: BTreeSet<&str> = names.filter(|host| host.parse::<IpAddr>().is_err()).collect();
        let found = ask(names, resolver, limit);
        let address = |endpoint: &Endpoint| {
            let mut address = match (endpoint.host.parse::<IpAddr>(), found.get(&*endpoint.host)) {
                (Ok(ip), _) => SocketAddr::new(ip, 0),
                (Err(_), Some(Ok(address))) => *address,
                (Err(_), Some(Err(error))) => return Err(error.to_string()),
                (Err(_), None) => {
                    return Err(format!("its name was not resolved within {} s", limit.as_secs()));
                }
            };
            address.set_port(endpoint.port);
            Ok(address)
        };
        Self(endpoints.iter().map(|endpoint| (endpoint.clone(), address(endpoint))).collect())
    }

    /// The addresses of all servers. One that is known already keeps its address while its name can't be resolved:
    /// whatever else the configuration changes does not depend on that. Comes with a warning for each of those.
    ///
    /// # Errors
    /// The first server that is not known and whose name means nothing.
    pub(crate) fn over(self, known: &Known) -> Result<(Known, Vec<String>), Unresolved> {
        let (mut addresses, mut warnings) = (Known::new(), Vec::new());
        for (endpoint, found) in self.0 {
            let address = match (found, known.get(&endpoint)) {
                (Ok(address), _) => address,
                (Err(cause), Some(address)) => {
                    warnings.push(format!("mysql_servers: {endpoint}: {cause}; it stays at {address}"));
                    *address
                }
                (Err(cause), None) => return Err(Unresolved { endpoint, cause }),
            };
            addresses.insert(endpoint, address);
        }
        Ok((addresses, warnings))
    }
}

/// What the resolver says of each name within `limit`; those of which it says nothing are left out.
fn ask(
    names: BTreeSet<&str>,
    resolver: &Resolver,
    limit: Duration,
) -> HashMap<String, io::Result<SocketAddr>> {
    let until = Instant::now() + limit;
    let count = names.len();
    let queue: VecDeque<String> = names.into_iter().map(str::to_owned).collect();
    let queue = Arc::new(Mutex::new(queue));
    let (answers, inbox) = channel();
    for _ in 0..count.min(THREADS_MAX) {
        let (queue, resolver, answers) = (queue.clone(), resolver.clone(), answers.clone());
        let asks = move || work_off(&queue, &resolver, &answers);
        if let Err(error) = std::thread::Builder::new().name("resolver".into()).spawn(asks) {
            tracing::warn!(%error, "no thread to look up names");
        }
    }
    drop(answers);
    let mut found = HashMap::new();
    while found.len() < count {
        match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((name, address)) => drop(found.insert(name, address)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    // What has not been begun is of no use to anybody.
    queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
    found
}

/// A thread's work: one name after the other, until none is left or nobody waits any more.
fn work_off(
    queue: &Mutex<VecDeque<String>>,
    resolver: &Resolver,
    answers: &Sender<(String, io::Result<SocketAddr>)>,
) {
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some(name) = next() {
        let address = resolver(&name);
        if answers.send((name, address)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
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

    /// Knows `db1`; never answers for names that begin with "slow".
    pub(crate) fn fake() -> Resolver {
        Arc::new(|host| match host {
            "db1" => Ok(SocketAddr::from(([10, 0, 0, 1], 0))),
            host if host.starts_with("slow") => loop {
                std::thread::park();
            },
            _ => Err(io::Error::other("no such name")),
        })
    }

    fn endpoint(text: &str) -> Endpoint {
        text.parse().unwrap()
    }

    #[test]
    fn every_server_has_its_address_and_port() {
        let config = config(&["db1:3306", "db1:3307", "127.0.0.9:4000", "[::1]:4001"]);
        let (known, warnings) = Addresses::look_up(&config, &fake()).over(&Known::new()).unwrap();
        let address = |text: &str| known[&endpoint(text)].to_string();
        assert_eq!(address("db1:3306"), "10.0.0.1:3306");
        assert_eq!(address("db1:3307"), "10.0.0.1:3307");
        assert_eq!(address("127.0.0.9:4000"), "127.0.0.9:4000");
        assert_eq!(address("[::1]:4001"), "[::1]:4001");
        assert_eq!((known.len(), warnings.len()), (4, 0));
    }

    #[test]
    fn a_name_that_means_nothing_or_takes_for_ever_is_told() {
        let fault = |server: &str, limit: Duration| {
            let found = Addresses::look_up_within(&config(&["127.0.0.1:1", server]), &fake(), limit);
            found.over(&Known::new()).unwrap_err().to_string()
        };
        assert_eq!(fault("nobody:3306", LIMIT), "mysql_servers: nobody:3306: no such name");
        let late = "mysql_servers: slow:3306: its name was not resolved within 0 s";
        assert_eq!(fault("slow:3306", Duration::from_millis(50)), late);
    }

    #[test]
    fn a_known_server_stays_where_it_is_while_its_name_is_not_resolved() {
        let was = SocketAddr::from(([10, 0, 0, 7], 3306));
        let known = Known::from([(endpoint("nobody:3306"), was)]);
        let found = Addresses::look_up(&config(&["nobody:3306", "db1:3306"]), &fake());
        let (addresses, warnings) = found.over(&known).unwrap();
        assert_eq!(addresses[&endpoint("nobody:3306")], was);
        assert_eq!(addresses.len(), 2);
        assert_eq!(warnings, ["mysql_servers: nobody:3306: no such name; it stays at 10.0.0.7:3306"]);
    }

    #[test]
    fn many_names_share_few_threads() {
        let servers: Vec<String> = (0..100).map(|number| format!("name{number}:3306")).collect();
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        let resolver: Resolver = Arc::new(|_| Ok(SocketAddr::from(([10, 0, 0, 1], 0))));
        let (known, _) = Addresses::look_up(&config(&servers), &resolver).over(&Known::new()).unwrap();
        assert_eq!(known.len(), 100);
    }
}
