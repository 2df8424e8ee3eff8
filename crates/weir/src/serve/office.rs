//! The admin interface of a running Weir: its database, its engine, its port.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_admin::{Admin, Doors, Settings};
use weir_config::Config;
use weir_proxy::service::Publisher;
use weir_store::Store;

use super::{Event, Intake, ServeError, orders_to};
use crate::engine::RunningWeir;
use crate::startup::Origin;
use crate::tables::Sources;
use crate::tls::Tls;
use crate::web::WebSource;

/// How long a new process waits for the old one's admin port.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What admins can have done.
pub(super) fn engine(
    origin: &Origin,
    events: &Sender<Event>,
    publisher: &Publisher,
    sources: &Arc<Sources>,
    shown: Arc<WebSource>,
) -> RunningWeir {
    let signals = events.clone();
    RunningWeir {
        intake: Intake(events.clone()),
        orders: orders_to(events),
        publisher: publisher.clone(),
        sources: sources.clone(),
        shown,
        signal: Box::new(move |signal| drop(signals.send(Event::Signal(signal)))),
        path: origin.path.clone(),
    }
}

/// Takes the admin port, if there is to be one: before the first client comes to the data port.
pub(super) fn doors(config: &Config) -> Result<Doors, ServeError> {
    Ok(Doors::open(&Settings::from(&config.admin))?)
}

/// The same for who has taken over: the old process closes its admin port at this moment. Clients of the data port
/// don't depend on it.
pub(super) fn doors_of_predecessor(config: &Config) -> Doors {
    let until = Instant::now() + PREDECESSOR_WAIT;
    loop {
        match Doors::open(&Settings::from(&config.admin)) {
            Ok(doors) => return doors,
            Err(_) if Instant::now() < until => sleep(LOOK_EVERY),
            Err(error) => {
                tracing::error!(%error, "no admin port: LOAD ADMIN VARIABLES, a reload or a restart tries it again");
                return Doors::default();
            }
        }
    }
}

/// Serves the admin port.
pub(super) fn open(
    config: &Config,
    doors: Doors,
    tls: Option<&Tls>,
    store: Arc<Mutex<Store>>,
    engine: RunningWeir,
) -> Result<Admin, ServeError> {
    let tls = tls.map(|tls| tls.config.clone());
    Ok(Admin::start(&Settings::from(&config.admin), doors, tls, store, Arc::new(engine))?)
}
