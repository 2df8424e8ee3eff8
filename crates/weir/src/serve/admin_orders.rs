//! Applies an admin's orders to the running process: no new clients for a while, another certificate.

use weir_proxy::service::Service;

use super::{Server, log_listeners};
use crate::tls::{Certificate, NO_TLS};

impl Server {
    /// Takes no new clients, or takes them again. Those who are there stay.
    ///
    /// # Errors
    /// Why an address can't be had; then everything is as before.
    pub(super) fn pause(&mut self, is_paused: bool, service: &mut Service) -> Result<String, String> {
        if is_paused == self.is_paused {
            return Ok(if is_paused { "paused already" } else { "not paused" }.to_owned());
        }
        let wanted = if is_paused { Vec::new() } else { self.config.listeners() };
        service.listen(&wanted).map_err(|error| error.to_string())?;
        self.is_paused = is_paused;
        self.web.pause(is_paused);
        // When the answer comes, no worker takes a client any more.
        self.publisher.settle();
        if is_paused {
            tracing::warn!("paused by an admin: no new clients are accepted");
        } else {
            log_listeners(service);
        }
        Ok(if is_paused { "paused: no new clients are accepted" } else { "new clients are accepted" }
            .to_owned())
    }

    /// # Errors
    /// There is no TLS.
    pub(super) fn reload_tls(&mut self, certificate: Certificate) -> Result<String, String> {
        self.tls.as_ref().ok_or(NO_TLS)?.take(certificate);
        tracing::info!("certificate and key read again");
        Ok("certificate and key read again".to_owned())
    }
}
