//! Applies another configuration to a Weir that runs, offered by another thread: the one that reads the file at
//! SIGHUP, or an admin's. It is taken whole or not at all, and when it was taken, all workers go by it.
//!
//! Names of servers are waited for, and files read, by the thread that offers it: roles are published, and failovers seen
//! to, while a resolver or a disk hangs.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use weir_config::Config;
use weir_protocol::auth::rsa::RsaKey;
use weir_proxy::service::Service;

use super::resources::Resources;
use super::takeover::{TakeoverState, UNDER_WAY};
use super::{Event, ServeError, Server, log_listeners};
use crate::addresses::Names;
use crate::logs::{self, Pending};
use crate::server_tls::ServersTls;

/// What can't change while Weir runs; each has its name and how it is kept.
const FIXED: [Fixed; 7] = [
    Fixed {
        name: "mysql-threads",
        restore: |new, old| restore(&mut new.variables.threads, &old.variables.threads),
    },
    Fixed {
        name: "mysql-io_driver",
        restore: |new, old| restore(&mut new.variables.io_driver, &old.variables.io_driver),
    },
    Fixed {
        name: "mysql-worker_scheduling",
        restore: |new, old| restore(&mut new.variables.worker_scheduling, &old.variables.worker_scheduling),
    },
    Fixed {
        name: "mysql-have_ssl",
        restore: |new, old| restore(&mut new.variables.have_ssl, &old.variables.have_ssl),
    },
    Fixed {
        name: "mysql-tls_cert_file and mysql-tls_key_file",
        restore: |new, old| restore(&mut new.variables.tls_files, &old.variables.tls_files),
    },
    Fixed {
        name: "mysql-tls_client_ca_file",
        restore: |new, old| restore(&mut new.variables.tls_client_ca_file, &old.variables.tls_client_ca_file),
    },
    Fixed { name: "datadir", restore: |new, old| restore(&mut new.datadir, &old.datadir) },
];

struct Fixed {
    name: &'static str,
    /// Gives the new configuration what the running one has. True if it had something else.
    restore: fn(&mut Config, &Config) -> bool,
}

/// The way to the thread that owns the configuration, for other threads.
#[derive(Clone)]
pub(crate) struct ConfigSender {
    events: Sender<Event>,
    names: Names,
    /// The running Weir's.
    datadir: Arc<Path>,
}

/// A configuration to go by, and whom to tell what comes of it.
pub(crate) struct ConfigOffer {
    config: Box<Config>,
    resources: Resources,
    /// Whether it is refused where it wants what only a restart can change.
    is_whole: bool,
    answer: Sender<Result<Taken, Refusal>>,
}

/// The outcome of a configuration that was taken.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    warnings: Vec<String>,
    /// What the logs' files will say, if they have changed.
    logs: Option<Pending>,
}

/// Why a configuration was not taken; then everything is as before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It wants this, which only a restart can change.
    NeedsRestart(&'static str),
    /// Something that it needs is missing.
    Faults(Vec<String>),
}

impl ConfigSender {
    /// For the Weir with this datadir.
    pub(super) fn new(events: Sender<Event>, datadir: &Path, names: &Names) -> Self {
        Self { events, names: names.clone(), datadir: datadir.into() }
    }

    /// Has Weir run by this configuration. Returns when all workers go by it; that takes longer than usual while
    /// names of servers take a moment, or a disk is slow. What only a restart can change stays as it is,
    /// with a warning for each. The same configuration as before disturbs nothing.
    ///
    /// # Errors
    /// Why it was not taken; then everything is as before.
    pub(crate) fn take(&self, config: Config) -> Result<Vec<String>, Vec<String>> {
        let resources = self.gather(&config);
        let taken = self.offer(config, resources, false).map_err(|refusal| match refusal {
            Refusal::Faults(faults) => faults,
            Refusal::NeedsRestart(what) => vec![format!("{what}: this needs a restart")],
        })?;
        let of_logs = taken.logs.map(Pending::faults).unwrap_or_default();
        Ok(taken.warnings.into_iter().chain(of_logs).collect())
    }

    /// The same for a configuration that may mean other files and addresses than before, though it says the same, and
    /// that is not to be taken in part. `resources` are what it needs, by [`ConfigSender::gather`].
    ///
    /// # Errors
    /// Why it was not taken.
    pub(super) fn reload(&self, config: Config, resources: Resources) -> Result<(), Refusal> {
        // Warnings are in the log.
        self.offer(config, resources, true).map(|_| ())
    }

    /// Gets what a configuration needs, which may take a while.
    pub(super) fn gather(&self, config: &Config) -> Resources {
        Resources::gather(config, &self.datadir, &self.names)
    }

    fn offer(&self, config: Config, resources: Resources, is_whole: bool) -> Result<Taken, Refusal> {
        let is_ending = || Refusal::Faults(vec!["weir is shutting down".to_owned()]);
        let (answer, taken) = channel();
        let offer = ConfigOffer { config: Box::new(config), resources, is_whole, answer };
        self.events.send(Event::ConfigOffer(offer)).map_err(|_| is_ending())?;
        // An offer that is dropped without an answer ends the channel.
        taken.recv().unwrap_or_else(|_| Err(is_ending()))
    }
}

impl Server {
    /// Takes what another thread offers.
    pub(super) fn consider(&mut self, offer: ConfigOffer, service: &mut Service) {
        let ConfigOffer { mut config, resources, is_whole, answer } = offer;
        if self.takeover != TakeoverState::None {
            return drop(answer.send(Err(Refusal::Faults(vec![UNDER_WAY.to_owned()]))));
        }
        if !is_whole {
            // Where its data is was settled at the start; rows of tables don't tell.
            config.datadir.clone_from(&self.config.datadir);
        }
        let kept = restore_fixed(&mut config, &self.config);
        let warnings = kept.iter().map(|name| format!("{name} takes effect at the next start"));
        // Of a file they were refused with their lines.
        let collisions = config.socket_collisions().into_iter();
        let collisions: Vec<String> =
            collisions.map(|collision| format!("{}: {}", collision.setting, collision.reason)).collect();
        let taken = match kept.first() {
            _ if !collisions.is_empty() => Err(Refusal::Faults(collisions)),
            Some(what) if is_whole => Err(Refusal::NeedsRestart(what)),
            _ if !is_whole && *config == self.config => Ok(Taken::default()),
            _ => self
                .go_by(*config, resources, service)
                .map_err(|error| Refusal::Faults(vec![error.to_string()])),
        };
        // Whoever asked may have gone: nobody waits for that.
        let _ = answer
            .send(taken.map(|more| Taken { warnings: warnings.chain(more.warnings).collect(), ..more }));
    }

    /// Runs by this configuration from now on. When it returns, all workers do. Gives warnings.
    fn go_by(
        &mut self,
        config: Config,
        resources: Resources,
        service: &mut Service,
    ) -> Result<Taken, ServeError> {
        let Resources { rsa_key, servers_tls } = resources;
        let servers_tls = self.snapshots.servers_tls.with(servers_tls?)?;
        self.take(&config, Ready { rsa_key: rsa_key?, servers_tls }, service)?;
        let warnings = self.unresolved();
        let has_other_logs = !logs::are_as_before(&config, &self.config);
        let logs = has_other_logs.then(|| logs::apply(self.publisher.query_logs(), &config));
        self.scheduler.take(&config);
        self.in_force.set(&config);
        let changes = (&self.config.weir_topology, &self.config.replication_hostgroups, &self.config.servers)
            != (&config.weir_topology, &config.replication_hostgroups, &config.servers);
        self.config = config;
        if changes {
            self.operations.announce_failovers();
        }
        self.publish();
        if !self.publisher.settle() {
            tracing::warn!("a worker has not applied the configuration yet: it has been busy for seconds");
        }
        Ok(Taken { warnings, logs })
    }

    /// Everything that a configuration needs and that may be missing comes first, listeners last: then nothing has
    /// changed if something is.
    fn take(&mut self, config: &Config, ready: Ready, service: &mut Service) -> Result<(), ServeError> {
        self.web.apply(config)?;
        if config.listeners() != self.config.listeners() && !self.is_paused {
            if let Err(error) = service.listen(&config.listeners()) {
                // As before, which was possible before.
                self.web.apply(&self.config)?;
                return Err(error.into());
            }
            log_listeners(service);
        }
        self.take_addresses(config);
        self.snapshots.rsa_key = ready.rsa_key;
        self.snapshots.servers_tls = ready.servers_tls;
        self.snapshots.take_rules(config);
        self.log.know_clusters(config);
        self.collector.limit_digests(config.variables.query_digests_max as usize);
        self.apply(config);
        Ok(())
    }
}

/// Everything that a configuration needs, in the form in which it is used.
struct Ready {
    rsa_key: Option<Arc<RsaKey>>,
    servers_tls: ServersTls,
}

/// Gives `new` what can't change while Weir runs; the names of what it wanted otherwise.
fn restore_fixed(new: &mut Config, old: &Config) -> Vec<&'static str> {
    FIXED.iter().filter(|fixed| (fixed.restore)(new, old)).map(|fixed| fixed.name).collect()
}

fn restore<T: Clone + PartialEq>(new: &mut T, old: &T) -> bool {
    let differs = new != old;
    new.clone_from(old);
    differs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;
    use crate::addresses::tests::{config, names};
    use weir_monitor::ServerAddresses;

    #[test]
    fn what_needs_a_restart_is_kept_and_named() {
        let old = Config::default();
        let mut new = Config { datadir: "/elsewhere".into(), ..Config::default() };
        new.variables.threads = old.variables.threads + 1;
        new.variables.max_connections = old.variables.max_connections + 1;
        assert_eq!(restore_fixed(&mut new, &old), ["mysql-threads", "datadir"]);
        let mut wanted = old.clone();
        wanted.variables.max_connections = new.variables.max_connections;
        assert_eq!(new, wanted);
        assert_eq!(restore_fixed(&mut new, &old), [""; 0]);
    }

    #[test]
    fn what_is_marked_as_needing_a_restart_is_kept() {
        let marked = weir_config::variables().iter().filter(|variable| variable.needs_restart());
        let marked: BTreeSet<String> = marked.map(weir_config::Variable::full_name).collect();
        let kept = FIXED.iter().flat_map(|fixed| fixed.name.split(" and ")).filter(|name| *name != "datadir");
        assert_eq!(kept.map(str::to_owned).collect::<BTreeSet<_>>(), marked);
    }

    #[test]
    fn an_offer_that_nobody_considers_is_answered() {
        let (events, inbox) = channel();
        let config_sender = ConfigSender::new(events, Path::new("/nowhere"), &Names::new());
        let main = thread::spawn(move || drop(inbox.recv().unwrap()));
        assert_eq!(config_sender.take(Config::default()), Err(vec!["weir is shutting down".to_owned()]));
        main.join().unwrap();
        assert_eq!(config_sender.take(Config::default()), Err(vec!["weir is shutting down".to_owned()]));
    }

    /// The main thread may publish roles while the resolver is asked: it hears of a configuration when that is over.
    #[test]
    fn names_are_looked_up_before_the_main_thread_hears_of_a_configuration() {
        let (events, inbox) = channel();
        let (asked, answers) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (is_asked, may_answer) = (asked.clone(), answers.clone());
        let names = names(move |_| {
            is_asked.wait();
            may_answer.wait();
            Ok(vec![[10, 0, 0, 1].into()])
        });
        let config_sender = ConfigSender::new(events.clone(), Path::new("/nowhere"), &names);
        let offers = thread::spawn(move || config_sender.take(config(&["db1:3306"])));
        asked.wait();
        events.send(Event::Roles).unwrap();
        assert!(matches!(inbox.recv().unwrap(), Event::Roles));
        assert!(inbox.try_recv().is_err(), "a configuration came before its addresses");
        answers.wait();
        let Event::ConfigOffer(offer) = inbox.recv().unwrap() else { panic!("no offer") };
        let known = names.known(&offer.config, &ServerAddresses::new());
        let at: Vec<String> = known.values().map(|known| known.at.unwrap().to_string()).collect();
        assert_eq!(at, ["10.0.0.1:3306"]);
        offer.answer.send(Ok(Taken::default())).unwrap();
        assert_eq!(offers.join().unwrap(), Ok(Vec::new()));
    }
}
