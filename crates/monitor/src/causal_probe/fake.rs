//! Plays a server that answers causal probes, for tests.

use weir_client::Capabilities;
use weir_testkit::{FakeGreeting, FakeServer, Script};

/// Sends a result of one row.
pub(super) fn row(script: Script, fields: &[&str]) -> Script {
    let text = |text: &str| {
        let mut bytes = vec![u8::try_from(text.len()).unwrap()];
        bytes.extend_from_slice(text.as_bytes());
        bytes
    };
    let column: Vec<u8> = ["def", "", "", "", "a", ""].into_iter().flat_map(text).collect();
    let column = [column, vec![12, 45, 0, 9, 0, 0, 0, 0xFD, 0, 0, 0, 0, 0]].concat();
    let eof = [0xFE, 0, 0, 2, 0];
    let count = u8::try_from(fields.len()).unwrap();
    let script = fields.iter().fold(script.send([count]), |script, _| script.send(column.clone()));
    script.send(eof).send(fields.iter().copied().flat_map(text).collect::<Vec<u8>>()).send(eof)
}

/// A server with this script for each of its connections, from 0 on.
pub(super) fn server(script: impl Fn(u32) -> Script + Send + Sync + 'static) -> FakeServer {
    let all = FakeGreeting::default();
    let greeting = FakeGreeting { capabilities: all.capabilities - Capabilities::DEPRECATE_EOF, ..all };
    FakeServer::with_login(greeting, move |login| script(login.connection)).unwrap()
}
