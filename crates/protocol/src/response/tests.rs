//! Reads replies as servers send them, in pieces of every size.

use super::*;
use crate::capability::Capabilities;
use crate::command::StmtPrepareOk;
use crate::frame;
use crate::fuzzing::{ReadReply, ReplyEventKind, read_reply};
use crate::ok::{ErrPacket, OK_AS_EOF_HEADER, OK_HEADER, OkPacket};
use crate::resultset::ColumnDefinition;
use crate::status::StatusFlags;

/// Builds a server's reply.
struct Reply {
    bytes: Vec<u8>,
    sequence: u8,
}

impl Reply {
    fn new() -> Self {
        Self { bytes: Vec::new(), sequence: 1 }
    }

    fn packet(mut self, payload: &[u8]) -> Self {
        frame::write_packet(&mut self.bytes, &mut self.sequence, payload);
        self
    }

    fn ok(self, header: u8, status: StatusFlags) -> Self {
        let mut payload = Vec::new();
        OkPacket::new(header, status).write(Capabilities::PROTOCOL_41, &mut payload);
        self.packet(&payload)
    }

    fn err(self) -> Self {
        let mut payload = Vec::new();
        ErrPacket::new(crate::error::QUERY_INTERRUPTED, b"interrupted").write(&mut payload);
        self.packet(&payload)
    }

    fn definitions(mut self, count: usize) -> Self {
        for _ in 0..count {
            let mut payload = Vec::new();
            ColumnDefinition::text(b"c", 10).write(Capabilities::PROTOCOL_41, &mut payload);
            self = self.packet(&payload);
        }
        self
    }

    fn prepare_ok(self, columns: u16, params: u16) -> Self {
        let mut payload = Vec::new();
        StmtPrepareOk { stmt_id: 1, columns, params, warnings: 0 }.write(&mut payload);
        self.packet(&payload).definitions(usize::from(columns + params))
    }

    /// A result set of one column; `more` results follow.
    fn result(self, rows: &[&[u8]], more: bool) -> Self {
        let mut status = StatusFlags::AUTOCOMMIT;
        status.set(StatusFlags::MORE_RESULTS_EXISTS, more);
        let start = self.packet(&[1]).definitions(1);
        rows.iter().fold(start, |reply, row| reply.packet(row)).ok(OK_AS_EOF_HEADER, status)
    }

    /// Reads it in chunks of every length, which must all tell the same.
    fn read(&self, kind: ReplyKind) -> ReadReply {
        let whole = read_reply(kind, &self.bytes, self.bytes.len(), false);
        for chunk in 1..self.bytes.len().min(600) {
            assert_eq!(read_reply(kind, &self.bytes, chunk, false), whole, "in chunks of {chunk}");
        }
        whole
    }
}

fn kinds(read: &ReadReply) -> Vec<ReplyEventKind> {
    read.events.iter().map(|event| event.what).collect()
}

use ReplyEventKind::{ColumnsEnd, Control as Is, Pass};

#[test]
fn ok_and_err_are_whole_replies() {
    let ok = Reply::new().ok(OK_HEADER, StatusFlags::AUTOCOMMIT);
    for kind in [ReplyKind::Results, ReplyKind::Simple] {
        let read = ok.read(kind);
        assert_eq!((kinds(&read), read.end), (vec![Is(Control::Ok)], Some(Ok(()))));
    }
    for kind in [ReplyKind::Results, ReplyKind::Simple, ReplyKind::Prepare] {
        let read = Reply::new().err().read(kind);
        assert_eq!((kinds(&read), read.end), (vec![Is(Control::Err)], Some(Ok(()))));
    }
    // COM_SET_OPTION is answered by an OK that looks like the end of rows.
    let read = Reply::new().ok(OK_AS_EOF_HEADER, StatusFlags::AUTOCOMMIT).read(ReplyKind::Simple);
    assert_eq!((kinds(&read), read.end), (vec![Is(Control::ResultEnd)], Some(Ok(()))));
}

#[test]
fn a_result_set_passes_between_its_count_and_its_end() {
    let read = Reply::new().result(&[b"\x01a", b"\x02bc", b"\xFB"], false).read(ReplyKind::Results);
    let expected = vec![Is(Control::ColumnCount), Pass, ColumnsEnd, Pass, Is(Control::ResultEnd)];
    assert_eq!((kinds(&read), read.end, read.rows), (expected, Some(Ok(())), 3));
}

#[test]
fn an_empty_result_set_has_no_rows_to_pass() {
    let read = Reply::new().result(&[], false).read(ReplyKind::Results);
    assert_eq!(kinds(&read), [Is(Control::ColumnCount), Pass, ColumnsEnd, Is(Control::ResultEnd)]);
    assert_eq!((read.end, read.rows), (Some(Ok(())), 0));
}

#[test]
fn several_results_are_one_reply() {
    let more = StatusFlags::AUTOCOMMIT | StatusFlags::MORE_RESULTS_EXISTS;
    let reply = Reply::new().ok(OK_HEADER, more).result(&[b"\x01a"], true).result(&[b"\x01b"], true);
    let read = reply.ok(OK_HEADER, StatusFlags::AUTOCOMMIT).read(ReplyKind::Results);
    let set = [Is(Control::ColumnCount), Pass, ColumnsEnd, Pass, Is(Control::ResultEnd)];
    let expected = [&[Is(Control::Ok)][..], &set, &set, &[Is(Control::Ok)]].concat();
    assert_eq!((kinds(&read), read.end, read.rows), (expected, Some(Ok(())), 1));
}

#[test]
fn an_error_may_come_in_the_place_of_rows_and_definitions() {
    let start = || Reply::new().packet(&[2]).definitions(1);
    let read = start().err().read(ReplyKind::Results);
    assert_eq!(kinds(&read), [Is(Control::ColumnCount), Pass, Is(Control::Err)]);
    let read = start().definitions(1).packet(b"\x01a").err().read(ReplyKind::Results);
    assert_eq!(kinds(&read), [Is(Control::ColumnCount), Pass, ColumnsEnd, Pass, Is(Control::Err)]);
    assert_eq!(read.end, Some(Ok(())));
}

#[test]
fn a_prepared_statement_s_definitions_end_twice() {
    let prepare = |columns, params| kinds(&Reply::new().prepare_ok(columns, params).read(ReplyKind::Prepare));
    assert_eq!(prepare(0, 0), [Is(Control::PrepareOk)]);
    assert_eq!(prepare(2, 0), [Is(Control::PrepareOk), Pass, ColumnsEnd]);
    assert_eq!(prepare(0, 3), [Is(Control::PrepareOk), Pass, ColumnsEnd]);
    assert_eq!(prepare(1, 1), [Is(Control::PrepareOk), Pass, ColumnsEnd, Pass, ColumnsEnd]);
}

#[test]
fn sequence_ids_move_on_behind_an_inserted_packet() {
    let reply = Reply::new().result(&[b"\x01a"], false);
    for chunk in [1, 3, 7, 1000] {
        let read = read_reply(ReplyKind::Results, &reply.bytes, chunk, true);
        let ids: Vec<u8> = read.events.iter().filter_map(|event| event.bytes.get(3)).copied().collect();
        // The EOF of a client without DEPRECATE_EOF has the id 3.
        assert_eq!(ids, [1, 2, 4, 5], "in chunks of {chunk}");
    }
}

#[test]
fn a_row_of_several_packets_is_one_row() {
    let row = vec![b'x'; PAYLOAD_MAX + 10];
    let exact = vec![b'x'; PAYLOAD_MAX];
    let reply = Reply::new().result(&[&row, &exact, b"\x01a"], false);
    for chunk in [1 << 16, PAYLOAD_MAX + 3, reply.bytes.len()] {
        let read = read_reply(ReplyKind::Results, &reply.bytes, chunk, false);
        assert_eq!((read.end, read.rows), (Some(Ok(())), 3), "in chunks of {chunk}");
    }
}

#[test]
fn a_long_row_that_begins_like_an_end_is_a_row() {
    // 0xFE begins the length of a value of 16 MB or more.
    let mut row = vec![0xFE];
    row.extend_from_slice(&(PAYLOAD_MAX as u64 + 1).to_le_bytes());
    row.resize(PAYLOAD_MAX + 10, b'x');
    let reply = Reply::new().result(&[&row], false);
    let read = read_reply(ReplyKind::Results, &reply.bytes, 1 << 20, false);
    assert_eq!((read.end, read.rows), (Some(Ok(())), 1));
}

#[test]
fn what_breaks_the_protocol_is_told() {
    let broken = |kind, reply: Reply| read_reply(kind, &reply.bytes, 5, false).end;
    let results = ReplyKind::Results;
    assert_eq!(broken(results, Reply::new().packet(b"")), Some(Err(BrokenReply::EmptyPacket)));
    assert_eq!(
        broken(results, Reply { bytes: Vec::new(), sequence: 2 }.err()),
        Some(Err(BrokenReply::Sequence { expected: 1, found: 2 }))
    );
    assert_eq!(broken(results, Reply::new().packet(b"\x00\x00")), Some(Err(BrokenReply::Malformed)));
    assert_eq!(
        broken(ReplyKind::Simple, Reply::new().packet(&[3])),
        Some(Err(BrokenReply::UnexpectedPacket(3)))
    );
    let long = vec![0; CONTROL_PACKET_BYTES_MAX + 1];
    assert_eq!(broken(results, Reply::new().packet(&long)), Some(Err(BrokenReply::Malformed)));
    let mut reader = ReplyReader::new(results, 1);
    let mut reply = Reply::new().err().bytes;
    assert!(matches!(reader.next(&mut reply), Ok(Step::Control(Control::Err, _))));
    assert_eq!(reader.next(&mut reply), Err(BrokenReply::Trailing));
}

#[test]
fn data_without_a_count_ends_with_an_ok() {
    let start = || Reply::new().packet(b"\x00\x00\x01a").packet(b"\x00\x00\x01b");
    let read = start().ok(OK_AS_EOF_HEADER, StatusFlags::LAST_ROW_SENT).read(ReplyKind::Data);
    assert_eq!((kinds(&read), read.end, read.rows), (vec![Pass, Is(Control::ResultEnd)], Some(Ok(())), 2));
    let read =
        Reply::new().definitions(3).ok(OK_AS_EOF_HEADER, StatusFlags::AUTOCOMMIT).read(ReplyKind::Data);
    assert_eq!((kinds(&read), read.end), (vec![Pass, Is(Control::ResultEnd)], Some(Ok(()))));
    assert_eq!(kinds(&start().err().read(ReplyKind::Data)), [Pass, Is(Control::Err)]);
    assert_eq!(kinds(&Reply::new().err().read(ReplyKind::Data)), [Is(Control::Err)]);
}

#[test]
fn the_reply_to_a_command_of_several_packets_begins_behind_them() {
    let mut reader = ReplyReader::new(ReplyKind::Results, 1);
    // Weir had to send one packet more than the client, who expects the reply right behind its own last one.
    reader.command_continued(3, 2);
    let mut reply = Reply { bytes: Vec::new(), sequence: 4 }.ok(OK_HEADER, StatusFlags::AUTOCOMMIT).bytes;
    assert!(matches!(reader.next(&mut reply), Ok(Step::Control(Control::Ok, _))));
    assert_eq!(reply[3], 3);
}

#[test]
fn an_error_can_take_the_place_of_the_rest_between_rows_and_results() {
    let mut reader = ReplyReader::new(ReplyKind::Results, 1);
    let places = [
        (&b"\x01\0\0\x01\x01"[..], None),
        (b"\x03\0\0\x02def", Some(3)),
        (b"\x02\0\0\x03\x01x", Some(4)),
        // Of a small row nothing passes before all of it is there,
        (b"\x02\0\0\x04\x01", Some(4)),
        // of a large one what there is.
        (b"\xFF\xFF\0\x04\x01", None),
    ];
    for (bytes, expected) in places {
        let mut bytes = bytes.to_vec();
        let mut at = 0;
        loop {
            match reader.next(&mut bytes[at..]).unwrap() {
                Step::Pass(count) | Step::Control(_, count) => at += count,
                Step::ColumnsEnd => {}
                Step::NeedMore | Step::Done => break,
            }
            if at == bytes.len() && expected != Some(3) {
                break;
            }
        }
        assert_eq!(reader.break_off(), expected, "{bytes:?}");
    }
}
