//! A session as an application has it, with everything that a server answers kept for comparison.

mod answer;
mod param;

use std::net::SocketAddrV4;
use std::time::Duration;

use weir_protocol::auth::{native, sha2};
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{self, ChangeUser, Command, StmtExecute, StmtPrepareOk};
use weir_protocol::frame;
use weir_protocol::handshake::{
    AuthMoreData, AuthSwitchRequest, CACHING_SHA2_PASSWORD, ConnectAttributes, MYSQL_NATIVE_PASSWORD,
};
use weir_protocol::ok::{ErrPacket, OK_AS_EOF_HEADER, OK_HEADER};
use weir_protocol::status::StatusFlags;
use weir_testkit::wire::{Login, Packet, RawClient};
use weir_testkit::{Account, TestkitError};

pub use answer::{Answer, Done, Outcome, Rows, Track};
pub use param::Param;

/// The longest that a statement of a test runs.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A logged-in client, at Weir or at a server.
#[derive(Debug)]
pub struct Session {
    raw: RawClient,
}

/// A statement that the other side has prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// Its id on this session.
    pub id: u32,
    /// How many parameters it has.
    pub params: u16,
    /// The definitions of its result's columns, as they came.
    pub columns: Vec<Vec<u8>>,
}

impl Session {
    /// Logs in as `app` with what common drivers ask for.
    pub fn open(server: SocketAddrV4, schema: &str) -> Result<Session, TestkitError> {
        Session::with(server, &Login::new(Account::APP).schema(schema))
    }

    /// Logs in as asked for.
    pub fn with(server: SocketAddrV4, login: &Login) -> Result<Session, TestkitError> {
        let mut raw = RawClient::login(server, login)?;
        raw.packets().set_read_timeout(READ_TIMEOUT)?;
        Ok(Session { raw })
    }

    /// The session of a client that has logged in.
    pub fn over(raw: RawClient) -> Session {
        Session { raw }
    }

    /// The connection id that the greeting named.
    pub fn id(&self) -> u32 {
        self.raw.greeting().thread_id
    }

    /// The connection itself.
    pub fn raw(&mut self) -> &mut RawClient {
        &mut self.raw
    }

    /// Runs a text and returns whatever is answered, also an error.
    pub fn query(&mut self, sql: &str) -> Result<Answer, TestkitError> {
        self.send_query(sql)?;
        self.results()
    }

    /// Sends a text; [`Session::results`] reads the answer.
    pub fn send_query(&mut self, sql: &str) -> Result<(), TestkitError> {
        let mut packet = Vec::new();
        command::put_query(&mut packet, sql.as_bytes());
        self.raw.packets().write_bytes(&packet)
    }

    /// Runs a text that must not fail, and returns how its last result ended.
    pub fn run(&mut self, sql: &str) -> Result<Done, TestkitError> {
        let answer = self.query(sql)?;
        answer.done().cloned().map_err(|error| failed(sql, &error))
    }

    /// The rows of a text's first result, NULL as "NULL".
    pub fn rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, TestkitError> {
        self.query(sql)?.rows().map_err(|error| failed(sql, &error))
    }

    /// The only value of the only row.
    pub fn value(&mut self, sql: &str) -> Result<String, TestkitError> {
        self.query(sql)?.value().map_err(|error| failed(sql, &error))
    }

    /// Runs a text that must fail with this error, and returns its message.
    pub fn refused(&mut self, sql: &str, code: u16) -> Result<String, TestkitError> {
        let answer = self.query(sql)?;
        match answer.results.last() {
            Some(Outcome::Err { code: got, message, .. }) if *got == code => Ok(message.clone()),
            other => Err(failed(sql, &format!("expected error {code}, got {other:?}"))),
        }
    }

    /// COM_INIT_DB.
    pub fn use_schema(&mut self, schema: &str) -> Result<Answer, TestkitError> {
        self.simple(Command::InitDb, schema.as_bytes())
    }

    /// COM_RESET_CONNECTION.
    pub fn reset(&mut self) -> Result<Answer, TestkitError> {
        self.simple(Command::ResetConnection, b"")
    }

    /// COM_PING.
    pub fn ping(&mut self) -> Result<Answer, TestkitError> {
        self.simple(Command::Ping, b"")
    }

    /// COM_CHANGE_USER, with the collation utf8mb4_general_ci.
    pub fn change_user(&mut self, account: Account, schema: &str) -> Result<Answer, TestkitError> {
        // The login named its plugin, which this capability allowed.
        let capabilities = self.raw.capabilities() | Capabilities::PLUGIN_AUTH;
        let change = ChangeUser {
            user: account.user.as_bytes(),
            // Servers answer every proof with a fresh scramble, so none is given.
            auth_data: b"",
            database: schema.as_bytes(),
            collation: Some(45),
            auth_plugin: Some(MYSQL_NATIVE_PASSWORD),
            attributes: ConnectAttributes::default(),
        };
        let mut packet = Vec::new();
        command::put_change_user(&mut packet, &change, capabilities);
        self.raw.packets().write_bytes(&packet)?;
        let end = self.answer_switch(account)?;
        Ok(Answer { results: vec![self.outcome(&end)?] })
    }

    /// COM_STMT_PREPARE; an error of the server's is the inner error.
    pub fn try_prepare(&mut self, sql: &str) -> Result<Result<Prepared, Outcome>, TestkitError> {
        let mut packet = Vec::new();
        command::put_stmt_prepare(&mut packet, sql.as_bytes());
        self.raw.packets().write_bytes(&packet)?;
        let first = self.read()?;
        if first.first() == Some(ErrPacket::HEADER) {
            return Ok(Err(self.outcome(&first)?));
        }
        let odd =
            |error| TestkitError::Protocol(format!("expected a prepared statement, got {first} ({error})"));
        let answer = StmtPrepareOk::parse(&first.payload).map_err(odd)?;
        self.definitions(answer.params)?;
        let columns = self.definitions(answer.columns)?;
        Ok(Ok(Prepared { id: answer.stmt_id, params: answer.params, columns }))
    }

    /// COM_STMT_PREPARE that must not fail.
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared, TestkitError> {
        self.try_prepare(sql)?.map_err(|refused| failed(sql, &format!("{refused:?}")))
    }

    /// COM_STMT_EXECUTE, with the types of the parameters.
    pub fn execute(&mut self, statement: &Prepared, params: &[Param]) -> Result<Answer, TestkitError> {
        self.execute_with(statement, params, true)
    }

    /// COM_STMT_EXECUTE, with or without the types: a client need send them only once.
    pub fn execute_with(
        &mut self,
        statement: &Prepared,
        params: &[Param],
        with_types: bool,
    ) -> Result<Answer, TestkitError> {
        let mut payload = Vec::new();
        StmtExecute { stmt_id: statement.id, flags: StmtExecute::CURSOR_TYPE_NO_CURSOR, iteration_count: 1 }
            .write(&mut payload);
        param::put(&mut payload, params, with_types);
        self.raw.send_command(&payload)?;
        self.results()
    }

    /// COM_STMT_EXECUTE with a cursor, from which nothing is fetched.
    pub fn open_cursor(&mut self, statement: &Prepared) -> Result<Answer, TestkitError> {
        let mut payload = Vec::new();
        StmtExecute { stmt_id: statement.id, flags: StmtExecute::CURSOR_TYPE_READ_ONLY, iteration_count: 1 }
            .write(&mut payload);
        self.raw.send_command(&payload)?;
        self.results()
    }

    /// COM_STMT_CLOSE, which is not answered.
    pub fn close(&mut self, statement: &Prepared) -> Result<(), TestkitError> {
        let mut packet = Vec::new();
        command::put_stmt_close(&mut packet, statement.id);
        self.raw.packets().write_bytes(&packet)
    }

    /// Reads the results that answer a query or an execution.
    pub fn results(&mut self) -> Result<Answer, TestkitError> {
        let mut results = Vec::new();
        loop {
            let outcome = self.next_result()?;
            let more =
                outcome.done().is_some_and(|done| done.status.contains(StatusFlags::MORE_RESULTS_EXISTS));
            results.push(outcome);
            if !more {
                return Ok(Answer { results });
            }
        }
    }

    /// Goes away without a word, as a crashed client does.
    pub fn vanish(self) {
        drop(self);
    }

    fn simple(&mut self, command: Command, content: &[u8]) -> Result<Answer, TestkitError> {
        let mut payload = vec![command.code()];
        payload.extend_from_slice(content);
        self.raw.send_command(&payload)?;
        let packet = self.read()?;
        Ok(Answer { results: vec![self.outcome(&packet)?] })
    }

    fn answer_switch(&mut self, account: Account) -> Result<Packet, TestkitError> {
        let packet = self.read()?;
        let is_switch = packet.first() == Some(OK_AS_EOF_HEADER);
        if !is_switch {
            return Ok(packet);
        }
        let odd = || TestkitError::Protocol(format!("no switch to a password that is proven: {packet}"));
        let switch = AuthSwitchRequest::parse(&packet.payload).map_err(|_| odd())?;
        let scramble: &[u8; 20] = switch.data.try_into().map_err(|_| odd())?;
        let password = account.password.as_bytes();
        let proof = match switch.plugin {
            MYSQL_NATIVE_PASSWORD => native::response(password, scramble).map(|proof| proof.to_vec()),
            CACHING_SHA2_PASSWORD => sha2::response(password, scramble).map(|proof| proof.to_vec()),
            _ => return Err(odd()),
        };
        self.raw.packets().write_packet(packet.seq.wrapping_add(1), &proof.unwrap_or_default())?;
        let answer = self.read()?;
        // MySQL says first that the proof was enough.
        if answer.payload == [AuthMoreData::HEADER, sha2::FAST_AUTH_OK] { self.read() } else { Ok(answer) }
    }

    /// Reads the next one of several results.
    pub fn next_result(&mut self) -> Result<Outcome, TestkitError> {
        let first = self.read()?;
        if matches!(first.first(), Some(OK_HEADER | ErrPacket::HEADER)) {
            return self.outcome(&first);
        }
        let count = weir_protocol::wire::Reader::new(&first.payload).lenenc_int().unwrap_or(u64::MAX);
        let count = u16::try_from(count)
            .map_err(|_| TestkitError::Protocol(format!("expected a column count, got {first}")))?;
        let columns = self.definitions(count)?;
        let mut rows = Vec::new();
        loop {
            let packet = self.read()?;
            let is_last = match packet.first() {
                Some(ErrPacket::HEADER) => return self.outcome(&packet),
                Some(OK_AS_EOF_HEADER) => packet.payload.len() < frame::PAYLOAD_MAX,
                _ => false,
            };
            if is_last {
                let end = self.end(&packet)?;
                let capabilities = self.raw.capabilities();
                return Ok(Outcome::Rows(Rows { columns, rows, end, capabilities }));
            }
            rows.push(packet.payload);
        }
    }

    fn definitions(&mut self, count: u16) -> Result<Vec<Vec<u8>>, TestkitError> {
        let mut definitions = Vec::new();
        for _ in 0..count {
            definitions.push(self.read()?.payload);
        }
        if count > 0 && !self.raw.capabilities().contains(Capabilities::DEPRECATE_EOF) {
            self.read()?.eof()?;
        }
        Ok(definitions)
    }

    /// The OK or EOF behind the rows.
    fn end(&self, packet: &Packet) -> Result<Done, TestkitError> {
        let capabilities = self.raw.capabilities();
        if capabilities.contains(Capabilities::DEPRECATE_EOF) {
            Ok(Done::from(packet.ok(capabilities)?))
        } else {
            Ok(Done::from(packet.eof()?))
        }
    }

    /// An OK or ERR.
    fn outcome(&self, packet: &Packet) -> Result<Outcome, TestkitError> {
        if packet.first() == Some(ErrPacket::HEADER) {
            return Ok(Outcome::of_err(&packet.err()?));
        }
        Ok(Outcome::Ok(Done::from(packet.ok(self.raw.capabilities())?)))
    }

    fn read(&mut self) -> Result<Packet, TestkitError> {
        self.raw.packets().read_packet()
    }
}

fn failed(sql: &str, error: &str) -> TestkitError {
    TestkitError::Protocol(format!("{sql}: {error}"))
}
