//! Runs every parser on any bytes, for the fuzz targets and the corpus test, with the rules that
//! must hold for whatever it accepts. A broken rule panics, and so does nothing else.

use crate::auth::{StoredPassword, rsa};
use crate::capability::Capabilities;
use crate::command::{
    ChangeUser, Command, StmtExecute, StmtFetch, StmtLongData, StmtPrepareOk, query_attributes_len,
};
use crate::frame::{self, Header};
use crate::handshake::{AuthPacket, ClientReply, ConnectAttributes, Greeting, HandshakeResponse};
use crate::ok::{EofPacket, ErrPacket, OkPacket, SessionTracks};
use crate::proxy_header::{self, Opening, ProxiedClient};
use crate::response::{BrokenReply, Control, ReplyKind, ReplyReader, Step};
use crate::resultset::{ColumnDefinition, TextRow};
use crate::status::StatusFlags;
use crate::wire::{Malformed, Reader};

/// The client's first packet: what is parsed and written again is parsed to the same.
pub fn fuzz_handshake_response(data: &[u8]) {
    let Ok(reply) = ClientReply::parse(data) else { return };
    let mut payload = Vec::new();
    match reply {
        ClientReply::Ssl(request) => {
            request.write(&mut payload);
            assert_eq!(ClientReply::parse(&payload), Ok(reply));
        }
        ClientReply::Response(response) => {
            assert_within(data, [response.user, response.auth_data]);
            assert_attributes(response.attributes);
            response.write(&mut payload);
            let again = HandshakeResponse::parse(&payload);
            // The capabilities are made to fit the fields that are there.
            let capabilities = again.map_or(response.capabilities, |again| again.capabilities);
            assert_eq!(again, Ok(HandshakeResponse { capabilities, ..response }));
            assert!(payload.len() <= data.len() + HANDSHAKE_GROWTH_MAX, "{} bytes", payload.len());
        }
    }
}

/// The server's packets up to the end of the login.
pub fn fuzz_greeting(data: &[u8]) {
    if let Ok(greeting) = Greeting::parse(data) {
        assert_within(data, [greeting.version, greeting.auth_plugin]);
        let mut payload = Vec::new();
        greeting.write(&mut payload);
        assert_eq!(Greeting::parse(&payload), Ok(greeting));
    }
    match AuthPacket::parse(data, Capabilities::PROTOCOL_41 | Capabilities::SESSION_TRACK) {
        Ok(AuthPacket::Switch(switch)) => {
            let mut payload = Vec::new();
            switch.write(&mut payload);
            // A NUL behind a scramble is taken off and put on again; other data stays as it is.
            assert_eq!(AuthPacket::parse(&payload, Capabilities::empty()), Ok(AuthPacket::Switch(switch)));
        }
        Ok(AuthPacket::More(more)) => {
            let mut payload = Vec::new();
            more.write(&mut payload);
            assert_eq!(payload, data);
            // It may be a server's RSA key.
            let _ = rsa::seal(more.data, b"secret", b"01234567890123456789");
        }
        Ok(AuthPacket::Ok(_) | AuthPacket::Err(_) | AuthPacket::OldSwitch) | Err(_) => {}
    }
    // Only its look matters here: the hash would take too long to check.
    let _ = StoredPassword::parse(data);
}

/// The header of the PROXY protocol: what is decided does not change with the bytes behind it, a header lies within them,
/// and its client is read again from a header that is written for it.
pub fn fuzz_proxy_header(data: &[u8]) {
    let whole = proxy_header::parse(data);
    if whole == Ok(Opening::Incomplete) {
        assert!(data.len() < proxy_header::HEADER_BYTES_MAX);
        return;
    }
    let mut more = data.to_vec();
    more.extend_from_slice(b"\r\n\0PROXY");
    assert_eq!(proxy_header::parse(&more), whole);
    let Ok(Opening::Header { len, client }) = whole else { return };
    assert!(len <= data.len() && len <= proxy_header::HEADER_BYTES_MAX && proxy_header::begins(data));
    assert_eq!(proxy_header::parse(&data[..len - 1]), Ok(Opening::Incomplete));
    let ProxiedClient::Tcp(address) = client else { return };
    for write in [proxy_header::write_v1, proxy_header::write_v2] {
        let mut written = Vec::new();
        write(address, address, &mut written);
        assert_eq!(proxy_header::parse(&written), Ok(Opening::Header { len: written.len(), client }));
    }
}

/// OK, ERR, EOF, session state, column definitions and rows. The first byte chooses capabilities.
pub fn fuzz_ok_packet(data: &[u8]) {
    let Some((&choice, payload)) = data.split_first() else { return };
    let mut capabilities = Capabilities::PROTOCOL_41;
    capabilities.set(Capabilities::SESSION_TRACK, choice & 1 != 0);
    capabilities.set(Capabilities::MARIADB_EXTENDED_METADATA, choice & 2 != 0);
    if let Ok(ok) = OkPacket::parse(payload, capabilities) {
        assert_ok_packet(&ok, capabilities);
    }
    if let Ok(err) = ErrPacket::parse(payload) {
        let mut again = Vec::new();
        err.write(&mut again);
        assert_eq!(again, payload);
    }
    if let Ok(eof) = EofPacket::parse(payload) {
        let mut again = Vec::new();
        eof.write(&mut again);
        assert!(payload.starts_with(&again));
    }
    if let Ok(column) = ColumnDefinition::parse(payload, capabilities) {
        let mut again = Vec::new();
        column.write(capabilities, &mut again);
        assert_eq!(ColumnDefinition::parse(&again, capabilities), Ok(column));
    }
    let fields = TextRow::new(payload).count();
    assert!(fields <= payload.len(), "more fields than bytes");
}

/// Commands, and packet boundaries. The first byte chooses capabilities, the second the number of
/// a statement's parameters.
pub fn fuzz_command(data: &[u8]) {
    let &[choice, n_params, ref payload @ ..] = data else { return };
    let mut capabilities = Capabilities::PROTOCOL_41;
    capabilities.set(Capabilities::SECURE_CONNECTION, choice & 1 != 0);
    capabilities.set(Capabilities::PLUGIN_AUTH, choice & 2 != 0);
    capabilities.set(Capabilities::CONNECT_ATTRS, choice & 4 != 0);
    if let Some(command) = payload.first().copied().and_then(Command::parse) {
        assert_eq!(Some(&command.code()), payload.first());
    }
    if let Ok(change) = ChangeUser::parse(payload, capabilities) {
        assert_change_user(&change, capabilities);
    }
    if choice & 8 != 0 {
        capabilities |= Capabilities::QUERY_ATTRIBUTES;
    }
    if payload.first() == Some(&Command::Query.code())
        && let Ok(len) = query_attributes_len(&payload[1..])
    {
        assert!(len < payload.len());
    }
    if StmtExecute::parse(payload).is_ok()
        && let Ok(found) = StmtExecute::parameters(payload, u16::from(n_params), capabilities)
    {
        assert!(found.null_bitmap.start >= StmtExecute::LEN && found.count >= usize::from(n_params));
        assert_eq!(found.null_bitmap.len(), found.count.div_ceil(8));
        let types_min = if found.new_params_bound { 2 * usize::from(n_params) } else { 0 };
        assert!(found.types.len() >= types_min);
        assert!(found.null_bitmap.end <= found.types.start && found.types.end <= found.values.start);
        assert_eq!(found.values.end, payload.len());
    }
    if let Ok(data) = StmtLongData::parse(payload) {
        let mut again = Vec::new();
        data.write(&mut again);
        assert!(payload.starts_with(&again));
    }
    if let Ok(fetch) = StmtFetch::parse(payload) {
        let mut again = Vec::new();
        fetch.write(&mut again);
        assert!(payload.starts_with(&again));
    }
    if let Ok(prepared) = StmtPrepareOk::parse(payload) {
        let mut again = Vec::new();
        prepared.write(&mut again);
        assert_eq!(StmtPrepareOk::parse(&again), Ok(prepared));
    }
    assert_frame(payload, choice);
}

/// Room for what a short packet may leave out and a written one has: lengths and NULs.
const HANDSHAKE_GROWTH_MAX: usize = 16;

fn assert_ok_packet(ok: &OkPacket<'_>, capabilities: Capabilities) {
    let mut whole = Vec::new();
    ok.write(capabilities, &mut whole);
    let mut status = ok.status;
    status.set(StatusFlags::SESSION_STATE_CHANGED, !ok.session_state.is_empty());
    assert_eq!(OkPacket::parse(&whole, capabilities), Ok(OkPacket { status, ..*ok }));

    let mut filtered = Vec::new();
    let tracks: Result<Vec<_>, Malformed> = ok.session_tracks().collect();
    let written = ok.write_filtered(capabilities, &mut filtered, |_| true);
    match tracks {
        Err(reason) => {
            assert_eq!(written, Err(reason));
            assert!(filtered.is_empty());
        }
        Ok(tracks) => {
            let again = OkPacket::parse(&filtered, capabilities);
            let state = again.map_or(&b""[..], |again| again.session_state);
            assert_eq!(SessionTracks::new(state).collect::<Result<Vec<_>, _>>(), Ok(tracks));
        }
    }
}

fn assert_change_user(change: &ChangeUser<'_>, capabilities: Capabilities) {
    assert_attributes(change.attributes);
    if !capabilities.contains(Capabilities::SECURE_CONNECTION) {
        return;
    }
    let mut payload = Vec::new();
    change.write(capabilities, &mut payload);
    assert_eq!(ChangeUser::parse(&payload, capabilities), Ok(*change));
}

fn assert_attributes(attributes: ConnectAttributes<'_>) {
    let mut encoded = Vec::new();
    for (key, value) in attributes.iter() {
        assert!(attributes.value(key).is_some());
        ConnectAttributes::put(&mut encoded, key, value);
    }
    let again = ConnectAttributes::parse(&encoded).map(|again| again.iter().eq(attributes.iter()));
    assert_eq!(again, Ok(true));
}

fn assert_frame(payload: &[u8], seq: u8) {
    let (mut packet, mut next) = (Vec::new(), seq);
    frame::write_packet(&mut packet, &mut next, payload);
    assert_eq!(Header::parse(&packet), Some(Header { len: payload.len(), seq }));
    assert_eq!(next, seq.wrapping_add(1));

    let mut reader = Reader::new(payload);
    let before = reader.remaining();
    match reader.lenenc_bytes() {
        Ok(bytes) => assert!(bytes.len() < before),
        Err(_) => assert_eq!(reader.remaining(), before),
    }
}

/// Fields are views of what was parsed, and not longer.
fn assert_within<const N: usize>(data: &[u8], fields: [&[u8]; N]) {
    let total: usize = fields.iter().map(|field| field.len()).sum();
    assert!(total <= data.len());
}

/// A reply in chunks: the first byte chooses its kind, the second the chunks' length, the rest are a server's
/// bytes. However they come, they mean the same.
pub fn fuzz_reply_reader(data: &[u8]) {
    let &[choice, chunk, ref bytes @ ..] = data else { return };
    let kind = match choice % 3 {
        _ if choice & 8 != 0 => ReplyKind::Data,
        0 => ReplyKind::Results,
        1 => ReplyKind::Prepare,
        _ => ReplyKind::Simple,
    };
    let inserts_eof = choice & 4 != 0;
    let whole = read_reply(kind, bytes, bytes.len(), inserts_eof);
    let pieces = read_reply(kind, bytes, usize::from(chunk).max(1), inserts_eof);
    assert_eq!(whole.end, pieces.end);
    if let Some(Err(_)) = whole.end {
        // What stands before an error may have passed already, or not.
        let sure = whole.events.len().saturating_sub(1);
        assert_eq!(pieces.events.get(..sure), whole.events.get(..sure));
    } else {
        assert_eq!(whole, pieces);
    }
    let passed: usize = whole.events.iter().map(|event| event.bytes.len()).sum();
    assert!(passed <= bytes.len());
}

/// What a [`ReplyReader`] made of a reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadReply {
    /// Control packets and the ends of definitions, and whatever passed in between.
    pub(crate) events: Vec<ReplyEvent>,
    /// How it ended; `None` if it did not.
    pub(crate) end: Option<Result<(), BrokenReply>>,
    pub(crate) rows: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReplyEvent {
    /// `Pass` stands for all data packets between two other events.
    pub(crate) what: ReplyEventKind,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyEventKind {
    Pass,
    Control(Control),
    ColumnsEnd,
}

/// Reads a reply that comes in chunks, as the proxy does: what is not taken is kept for the next chunk.
pub(crate) fn read_reply(kind: ReplyKind, bytes: &[u8], chunk: usize, inserts_eof: bool) -> ReadReply {
    let mut reader = ReplyReader::new(kind, 1);
    let mut read = ReadReply::default();
    let mut kept = Vec::new();
    let mut chunks = bytes.chunks(chunk.max(1));
    loop {
        let (what, used) = match reader.next(&mut kept) {
            Ok(Step::Pass(count)) => (ReplyEventKind::Pass, count),
            Ok(Step::Control(control, count)) => (ReplyEventKind::Control(control), count),
            Ok(Step::ColumnsEnd) => (ReplyEventKind::ColumnsEnd, 0),
            Ok(Step::Done) => {
                read.end = Some(Ok(()));
                break;
            }
            Ok(Step::NeedMore) => match chunks.next() {
                Some(chunk) => {
                    kept.extend_from_slice(chunk);
                    continue;
                }
                None => break,
            },
            Err(broken) => {
                read.end = Some(Err(broken));
                break;
            }
        };
        assert!(used > 0 || what == ReplyEventKind::ColumnsEnd, "a step that takes nothing");
        if what == ReplyEventKind::ColumnsEnd && inserts_eof {
            reader.shift_sequence();
        }
        let bytes: Vec<u8> = kept.drain(..used).collect();
        match read.events.last_mut() {
            Some(last) if what == ReplyEventKind::Pass && last.what == what => last.bytes.extend(bytes),
            _ => read.events.push(ReplyEvent { what, bytes }),
        }
        // A request for a local file ends what can be read without an answer to it.
        if reader.is_done() || what == ReplyEventKind::Control(Control::LocalInfile) {
            read.end = Some(Ok(()));
            break;
        }
    }
    read.rows = reader.rows();
    read
}
