//! Clients get on the wire, packet by packet, what a server sends straight: for clients of every kind of
//! capabilities.

mod attributes;
mod eof;
mod last_prepared;
mod sessions;
mod types;
mod warnings;

use std::error::Error;
use std::net::SocketAddrV4;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_protocol::command::{Command, StmtPrepareOk};
use weir_protocol::ok::{EofPacket, ErrPacket, OK_HEADER};
use weir_protocol::status::StatusFlags;
use weir_testkit::TestkitError;
use weir_testkit::wire::{Login, Packet, RawClient};
use weir_tests::{Case, CaseResult, Env};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    [
        attributes::trials(),
        eof::trials(),
        last_prepared::trials(),
        sessions::trials(),
        types::trials(),
        warnings::trials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How long Weir may take to know its servers.
const PATIENCE: Duration = Duration::from_secs(10);
/// A row may begin with an EOF's header, too, and is longer then.
const EOF_BYTES_MAX: usize = 9;

/// Two clients of one kind, one at Weir and one at the server behind it.
struct Twins {
    through: RawClient,
    direct: RawClient,
}

impl Twins {
    fn open(weir: SocketAddrV4, server: SocketAddrV4, login: &Login) -> Result<Twins, TestkitError> {
        Ok(Twins { through: RawClient::login(weir, login)?, direct: RawClient::login(server, login)? })
    }

    /// Both get the same answer to a command, but for the ids of prepared statements and what `blur` makes alike.
    fn ask(&mut self, payload: &[u8], blur: fn(&mut Vec<Packet>)) -> Result<Vec<Packet>, Box<dyn Error>> {
        let mut through = answer(&mut self.through, payload)?;
        let mut direct = answer(&mut self.direct, payload)?;
        blur(&mut through);
        blur(&mut direct);
        alike(&payload.escape_ascii().to_string(), &through, &direct)?;
        Ok(through)
    }

    fn query(&mut self, sql: &str, blur: fn(&mut Vec<Packet>)) -> Result<Vec<Packet>, Box<dyn Error>> {
        self.ask(&[&[Command::Query.code()], sql.as_bytes()].concat(), blur)
    }

    /// Prepares and executes with these parameters, all of them of type LONG.
    fn execute(&mut self, sql: &str, params: &[i32], flags: u8, blur: fn(&mut Vec<Packet>)) -> CaseResult {
        let mut parameters = Vec::new();
        if !params.is_empty() {
            parameters.extend(std::iter::repeat_n(0, params.len().div_ceil(8)));
            parameters.push(1);
            parameters.extend(params.iter().flat_map(|_| [3, 0]));
            parameters.extend(params.iter().flat_map(|param| param.to_le_bytes()));
        }
        self.execute_each(sql, &[parameters], flags, blur)
    }

    /// Prepares, and executes with each of these in turn, as they stand behind the fixed part of the command.
    fn execute_each(
        &mut self,
        sql: &str,
        parameters: &[Vec<u8>],
        flags: u8,
        blur: fn(&mut Vec<Packet>),
    ) -> CaseResult {
        let payload = [&[Command::StmtPrepare.code()], sql.as_bytes()].concat();
        let mut ids = Vec::new();
        for client in [&mut self.through, &mut self.direct] {
            client.send_command(&payload)?;
            let first = client.packets().read_packet()?;
            let prepared = StmtPrepareOk::parse(&first.payload).map_err(|_| format!("{sql}: {first}"))?;
            ids.push(prepared.stmt_id);
            read_definitions(client, prepared.params, &mut Vec::new())?;
            read_definitions(client, prepared.columns, &mut Vec::new())?;
        }
        for parameters in parameters {
            let mut answers = Vec::new();
            for (client, id) in [&mut self.through, &mut self.direct].into_iter().zip(&ids) {
                let mut payload = vec![Command::StmtExecute.code()];
                payload.extend_from_slice(&id.to_le_bytes());
                payload.extend_from_slice(&[flags, 1, 0, 0, 0]);
                payload.extend_from_slice(parameters);
                let mut packets = answer(client, &payload)?;
                blur(&mut packets);
                answers.push(packets);
            }
            alike(sql, &answers[0], &answers[1])?;
        }
        Ok(())
    }
}

/// Names the first packet that is another one.
fn alike(what: &str, through: &[Packet], direct: &[Packet]) -> CaseResult {
    let other = (0..through.len().max(direct.len())).find(|at| through.get(*at) != direct.get(*at));
    let shown = |packets: &[Packet], at: usize| packets.get(at).map(Packet::to_string);
    match other {
        None => Ok(()),
        Some(at) => {
            let (here, there) = (shown(through, at), shown(direct, at));
            Err(format!("{what}, packet {at}: {here:?} through Weir, {there:?} directly").into())
        }
    }
}

/// The whole reply to a command.
fn answer(client: &mut RawClient, payload: &[u8]) -> Result<Vec<Packet>, TestkitError> {
    client.send_command(payload)?;
    let mut packets = Vec::new();
    if payload.first() == Some(&Command::StmtPrepare.code()) {
        let mut first = client.packets().read_packet()?;
        if let Ok(prepared) = StmtPrepareOk::parse(&first.payload) {
            first.payload[StmtPrepareOk::STMT_ID].fill(0);
            packets.push(first);
            read_definitions(client, prepared.params, &mut packets)?;
            read_definitions(client, prepared.columns, &mut packets)?;
        } else {
            packets.push(first);
        }
        return Ok(packets);
    }
    while read_result(client, &mut packets)? {}
    Ok(packets)
}

/// Definitions, and the EOF behind them; its flags.
fn read_definitions(
    client: &mut RawClient,
    count: u16,
    packets: &mut Vec<Packet>,
) -> Result<StatusFlags, TestkitError> {
    for _ in 0..count {
        packets.push(client.packets().read_packet()?);
    }
    if count == 0 || client.capabilities().contains(Capabilities::DEPRECATE_EOF) {
        return Ok(StatusFlags::empty());
    }
    let eof = client.packets().read_packet()?;
    let status = eof.eof()?.status;
    packets.push(eof);
    Ok(status)
}

/// One result; true if another follows, as a client would take it.
fn read_result(client: &mut RawClient, packets: &mut Vec<Packet>) -> Result<bool, TestkitError> {
    let capabilities = client.capabilities();
    let first = client.packets().read_packet()?;
    packets.push(first.clone());
    let columns = match first.first() {
        Some(OK_HEADER) => {
            return Ok(first.ok(capabilities)?.status.contains(StatusFlags::MORE_RESULTS_EXISTS));
        }
        Some(ErrPacket::HEADER) | None => return Ok(false),
        Some(0xFE) => return Ok(false),
        Some(columns) => columns,
    };
    let begun = read_definitions(client, columns.into(), packets)?;
    if begun.contains(StatusFlags::CURSOR_EXISTS) {
        return Ok(false);
    }
    loop {
        let packet = client.packets().read_packet()?;
        packets.push(packet.clone());
        let status = match packet.first() {
            Some(ErrPacket::HEADER) => return Ok(false),
            Some(0xFE) if capabilities.contains(Capabilities::DEPRECATE_EOF) => {
                packet.ok(capabilities)?.status
            }
            Some(0xFE) if packet.payload.len() < EOF_BYTES_MAX => packet.eof()?.status,
            _ => continue,
        };
        // MySQL's OUT parameters: only the EOF in front of them tells that an OK follows.
        let both = if begun.contains(StatusFlags::PS_OUT_PARAMS) { begun | status } else { status };
        return Ok(both.contains(StatusFlags::MORE_RESULTS_EXISTS));
    }
}

/// The flag that something has changed, and warnings in an EOF behind definitions: what Weir does not know then.
fn blur_eof(packets: &mut Vec<Packet>) {
    let mut is_begun = false;
    for packet in packets {
        let Ok(mut eof) = EofPacket::parse(&packet.payload) else { continue };
        eof.status.remove(StatusFlags::SESSION_STATE_CHANGED);
        is_begun = !is_begun;
        if is_begun {
            eof.warnings = 0;
        }
        packet.payload.clear();
        eof.write(&mut packet.payload);
    }
}

/// Nothing.
fn as_it_is(_: &mut Vec<Packet>) {}

/// The servers of either family, each with a Weir in front and a schema: (Weir, server, schema).
type Place = (weir_testkit::Weir, SocketAddrV4, String);

fn mariadb(env: &Env) -> Result<Place, Box<dyn Error>> {
    let weir = crate::prepared::weir_with_connections(env, 1, 2)?;
    Ok((weir, env.cluster()?.node(1).addr(), env.schema()?))
}

fn mysql(env: &Env) -> Result<Place, Box<dyn Error>> {
    Ok((env.mysql_weir(2)?, env.mysql()?.source().addr(), env.mysql_schema()?))
}
