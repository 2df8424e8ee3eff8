//! The commands of the protocol beside COM_QUERY and those of prepared statements: each answered as a server does.

mod cursors;
mod local_infile;
pub(crate) mod long_data;
mod read_only;
mod seldom;

use weir_testkit::TestkitError;
use weir_testkit::wire::Packet;
use weir_tests::{Case, Session};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    [seldom::trials(), local_infile::trials(), cursors::trials(), long_data::trials(), read_only::trials()]
        .into_iter()
        .flatten()
        .collect()
}

/// Sends a command and reads packets up to the first that ends a reply without rows, or the data of one: OK, EOF,
/// ERR.
fn ask(session: &mut Session, payload: &[u8]) -> Result<Vec<Packet>, TestkitError> {
    session.raw().send_command(payload)?;
    let mut packets = Vec::new();
    loop {
        let packet = session.raw().packets().read_packet()?;
        let is_last =
            matches!(packet.first(), Some(0xFE | 0xFF)) || (packets.is_empty() && packet.first() == Some(0));
        packets.push(packet);
        if is_last {
            return Ok(packets);
        }
    }
}
