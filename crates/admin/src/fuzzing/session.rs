//! Plays whole connections: what a client sends, from its login on.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;

use weir_config::{Config, TableRows};
use weir_query_log::AuditEvent;
use weir_store::Store;
use weir_topology::Endpoint;

use crate::engine::{Engine, EngineCommand, Rows, SwitchoverPlan};
use crate::server::{Admin, AdminSockets};
use crate::session::serve;
use crate::settings::Settings;
use crate::wire::{Socket, Wire};

/// A client sends no more than fits into a socket's buffer.
const BYTES_MAX: usize = 64 << 10;
/// Of the payload of the largest packet that is taken apart here.
const PIECE: usize = 0xFF_FFFF;

/// A client sends `data`; the users `admin` and `stats` have no passwords. Panics if a promise does not hold.
pub fn fuzz_session(data: &[u8]) {
    let data = data.get(..BYTES_MAX).unwrap_or(data);
    let (here, mut client) = UnixStream::pair().unwrap_or_else(|error| panic!("{error}"));
    let admin = admin();
    let reading = client.try_clone().unwrap_or_else(|error| panic!("{error}"));
    let _ = client.write_all(data).and_then(|()| client.shutdown(Shutdown::Write));
    let answered = thread::scope(|scope| {
        // What is not read stops who writes.
        let reader = scope.spawn(move || {
            let (mut reading, mut answered) = (reading, Vec::new());
            let _ = reading.read_to_end(&mut answered);
            answered
        });
        {
            let mut wire = Wire::new(Socket::Unix(here));
            let _ = serve(&admin.shared, &mut wire, 1, None, || ());
        }
        drop(client);
        reader.join().unwrap_or_default()
    });
    assert_packets(&answered);
}

/// Whole packets, the first of which is a greeting.
fn assert_packets(answered: &[u8]) {
    let mut rest = answered;
    let mut is_first = true;
    while let Some((header, after)) = rest.split_first_chunk::<4>() {
        let length = usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16;
        assert!(length < PIECE && length <= after.len(), "a packet is not whole");
        assert!(!is_first || after.first() == Some(&10), "no greeting");
        is_first = false;
        rest = after.get(length..).unwrap_or_default();
    }
    assert!(rest.is_empty(), "half a header");
}

fn admin() -> Admin {
    let account = |user: &str| vec![(user.to_owned(), String::new())];
    let settings = Settings { admins: account("admin"), stats: account("stats"), ..Settings::default() };
    let start = || -> Result<Admin, Box<dyn std::error::Error>> {
        let store = Arc::new(Mutex::new(Store::in_memory()?));
        Ok(Admin::start(&settings, AdminSockets::default(), None, store, Arc::new(Idle))?)
    };
    start().unwrap_or_else(|error| panic!("{error}"))
}

/// An engine that agrees to everything and does nothing.
struct Idle;

impl Engine for Idle {
    fn apply(&self, _: &Config) -> Result<Vec<String>, Vec<String>> {
        Ok(Vec::new())
    }

    fn rows(&self, _: &str, _: &mut dyn FnMut(Rows<'_>)) {}

    fn rows_and_reset(&self, _: &str, _: &mut dyn FnMut(Rows<'_>)) {}

    fn kill(&self, thread_id: u64, _: bool) -> bool {
        thread_id == 1
    }

    fn audit(&self, _: &AuditEvent<'_>) {}

    fn command(&self, _: EngineCommand) -> Result<String, String> {
        Ok(String::new())
    }

    fn plan_switchover(&self, _: u32, _: Option<Endpoint>) -> Result<SwitchoverPlan, String> {
        Err("there is no cluster".to_owned())
    }

    fn file_rows(&self) -> Result<TableRows, Vec<String>> {
        Ok(TableRows::new())
    }

    // Nor is a file written then.
    fn config_text(&self, _: &TableRows) -> Result<String, String> {
        Err("there is no text".to_owned())
    }

    fn metrics_text(&self) -> Result<String, String> {
        Ok("# EOF\n".to_owned())
    }
}
