//! Sets up the admin interface of a running Weir: its database, its engine, its port.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use weir_admin::{Admin, AdminSockets, Settings};
use weir_config::Config;
use weir_proxy::service::Publisher;
use weir_statistics::Statistics;
use weir_store::Store;

use super::takeover::UNDER_WAY;
use super::{ConfigSender, Event, ServeError, orders_to};
use crate::addresses::Names;
use crate::engine::RunningWeir;
use crate::startup::Origin;
use crate::takeover::Seal;
use crate::tls::Tls;
use weir_web::WebSource;

/// What admins can have done.
pub(super) fn engine(
    origin: &Origin,
    events: &Sender<Event>,
    publisher: &Publisher,
    statistics: &Statistics,
    names: &Names,
    shown: Arc<WebSource>,
    tls: Option<Tls>,
) -> RunningWeir {
    let signals = events.clone();
    RunningWeir {
        config_sender: ConfigSender::new(events.clone(), &statistics.state.config().datadir, names),
        tls,
        orders: orders_to(events),
        publisher: publisher.clone(),
        statistics: statistics.clone(),
        shown,
        signal: Box::new(move |signal| drop(signals.send(Event::Signal(signal)))),
        origin: origin.clone(),
    }
}

/// Serves the admin port.
pub(super) fn open(
    config: &Config,
    sockets: AdminSockets,
    tls: Option<&Tls>,
    store: Arc<Mutex<Store>>,
    engine: RunningWeir,
) -> Result<Arc<Admin>, ServeError> {
    let tls = tls.map(|tls| tls.config.clone());
    Ok(Arc::new(Admin::start(&Settings::from(&config.admin), sockets, tls, store, Arc::new(engine))?))
}

/// Has what is saved stay as it is, for a process that is about to take over.
pub(super) fn seal(store: &Arc<Mutex<Store>>) -> Seal {
    let store = store.clone();
    Arc::new(move |is_sealed| {
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        if is_sealed {
            store.seal(UNDER_WAY);
        } else {
            store.unseal();
        }
    })
}
