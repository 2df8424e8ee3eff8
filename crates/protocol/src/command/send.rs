//! Writes the commands that a proxy sends of its own: whole packets, header included, sequence number 0.

use crate::capability::Capabilities;
use crate::command::{ChangeUser, Command};
use crate::frame;
use crate::wire::put_u32;

/// Appends COM_QUERY for a client without QUERY_ATTRIBUTES.
pub fn put_query(out: &mut Vec<u8>, sql: &[u8]) {
    put_command(out, Command::Query, |out| out.extend_from_slice(sql));
}

/// Appends COM_QUERY for a client with QUERY_ATTRIBUTES; `attributes` as they stand in front of the text,
/// [`NO_QUERY_ATTRIBUTES`](super::NO_QUERY_ATTRIBUTES) for none.
pub fn put_query_with_attributes(out: &mut Vec<u8>, attributes: &[u8], sql: &[u8]) {
    put_command(out, Command::Query, |out| {
        out.extend_from_slice(attributes);
        out.extend_from_slice(sql);
    });
}

/// Appends COM_INIT_DB.
pub fn put_init_db(out: &mut Vec<u8>, database: &[u8]) {
    put_command(out, Command::InitDb, |out| out.extend_from_slice(database));
}

/// Appends COM_STMT_PREPARE.
pub fn put_stmt_prepare(out: &mut Vec<u8>, sql: &[u8]) {
    put_command(out, Command::StmtPrepare, |out| out.extend_from_slice(sql));
}

/// Appends COM_STMT_CLOSE, which is not answered.
pub fn put_stmt_close(out: &mut Vec<u8>, stmt_id: u32) {
    put_command(out, Command::StmtClose, |out| put_u32(out, stmt_id));
}

/// Appends COM_RESET_CONNECTION.
pub fn put_reset_connection(out: &mut Vec<u8>) {
    put_command(out, Command::ResetConnection, |_| {});
}

/// Appends COM_CHANGE_USER, see [`ChangeUser::write`].
pub fn put_change_user(out: &mut Vec<u8>, change: &ChangeUser<'_>, capabilities: Capabilities) {
    frame::packet(out, &mut 0, |out| change.write(capabilities, out));
}

/// Appends COM_PING.
pub fn put_ping(out: &mut Vec<u8>) {
    put_command(out, Command::Ping, |_| {});
}

/// Appends COM_QUIT, which is not answered.
pub fn put_quit(out: &mut Vec<u8>) {
    put_command(out, Command::Quit, |_| {});
}

fn put_command(out: &mut Vec<u8>, command: Command, fill: impl FnOnce(&mut Vec<u8>)) {
    frame::packet(out, &mut 0, |out| {
        out.push(command.code());
        fill(out);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_whole_packets_one_behind_the_other() {
        let mut out = Vec::new();
        put_ping(&mut out);
        put_query(&mut out, b"DO 1");
        put_stmt_close(&mut out, 0x0102_0304);
        put_init_db(&mut out, b"d");
        put_reset_connection(&mut out);
        put_query_with_attributes(&mut out, crate::command::NO_QUERY_ATTRIBUTES, b"DO 1");
        put_quit(&mut out);
        let expected: &[&[u8]] = &[
            b"\x01\0\0\0\x0e",
            b"\x05\0\0\0\x03DO 1",
            b"\x05\0\0\0\x19\x04\x03\x02\x01",
            b"\x02\0\0\0\x02d",
            b"\x01\0\0\0\x1f",
            b"\x07\0\0\0\x03\0\x01DO 1",
            b"\x01\0\0\0\x01",
        ];
        assert_eq!(out, expected.concat());
    }
}
