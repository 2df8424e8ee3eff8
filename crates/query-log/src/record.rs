//! Encodes log records between threads: numbers and texts one after the other, never outside the process.

use crate::Log;

/// Numbers of a statement's record, and room for the lengths of its texts.
const STATEMENT_BYTES: usize = 128;
/// The same of an audit record.
const AUDIT_BYTES: usize = 64;
/// First byte of a record.
const STATEMENT: u8 = 1;
const AUDIT: u8 = 2;

/// The command by which a statement came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Command {
    /// COM_QUERY
    #[default]
    Query,
    /// COM_STMT_PREPARE
    Prepare,
    /// COM_STMT_EXECUTE
    Execute,
}

/// A statement that has ended, in whatever way. Times are of [`monotonic_ns`](crate::monotonic_ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statement<'a> {
    /// It is for the events log.
    pub is_event: bool,
    /// It is for the slow log.
    pub is_slow: bool,
    /// How it came.
    pub command: Command,
    /// The connection id that the client knows.
    pub thread_id: u32,
    /// Where it ran; none: Weir has answered it.
    pub hostgroup: Option<u32>,
    /// When Weir had it from the client.
    pub begun_ns: u64,
    /// When its reply was complete.
    pub ended_ns: u64,
    /// The hash of its digest.
    pub digest: Option<u64>,
    /// The error's number; 0: none.
    pub errno: u16,
    /// Rows that it has changed.
    pub rows_affected: u64,
    /// Rows of its results.
    pub rows_sent: u64,
    /// The id that its OK tells; 0: none.
    pub last_insert_id: u64,
    /// The client's id of a prepared statement; 0: none.
    pub statement_id: u32,
    /// The length of its text, of which [`Statement::query`] may be the beginning.
    pub query_bytes: u64,
    /// The client's address.
    pub client: &'a [u8],
    /// The server that has answered; empty for none.
    pub server: &'a [u8],
    /// The user.
    pub username: &'a [u8],
    /// The schema; empty for none.
    pub schemaname: &'a [u8],
    /// The text.
    pub query: &'a [u8],
    /// The error's text.
    pub error: &'a [u8],
}

/// The kind of an audit record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditKind {
    /// A client has logged in.
    #[default]
    ConnectOk,
    /// A login was refused.
    ConnectErr,
    /// Another user on the same connection.
    ChangeUserOk,
    /// That was refused.
    ChangeUserErr,
    /// The session has another schema: USE or COM_INIT_DB.
    InitDb,
    /// The client says that it leaves.
    Quit,
    /// The session is over.
    Close,
    /// A login at the admin interface.
    AdminConnectOk,
    /// A login there was refused.
    AdminConnectErr,
    /// A session there is over.
    AdminClose,
    /// Something was changed there, or tried to: see [`AuditEvent::statement`].
    AdminChange,
}

impl AuditKind {
    const ALL: [Self; 11] = [
        Self::ConnectOk,
        Self::ConnectErr,
        Self::ChangeUserOk,
        Self::ChangeUserErr,
        Self::InitDb,
        Self::Quit,
        Self::Close,
        Self::AdminConnectOk,
        Self::AdminConnectErr,
        Self::AdminClose,
        Self::AdminChange,
    ];

    /// Its name in the log: ProxySQL's, but for the last one, which ProxySQL does not log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ConnectOk => "MySQL_Client_Connect_OK",
            Self::ConnectErr => "MySQL_Client_Connect_ERR",
            Self::ChangeUserOk => "MySQL_Client_Change_User_OK",
            Self::ChangeUserErr => "MySQL_Client_Change_User_ERR",
            Self::InitDb => "MySQL_Client_Init_DB",
            Self::Quit => "MySQL_Client_Quit",
            Self::Close => "MySQL_Client_Close",
            Self::AdminConnectOk => "Admin_Connect_OK",
            Self::AdminConnectErr => "Admin_Connect_ERR",
            Self::AdminClose => "Admin_Close",
            Self::AdminChange => "Admin_Change",
        }
    }
}

/// Something about a session. Times are of [`monotonic_ns`](crate::monotonic_ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditEvent<'a> {
    /// What.
    pub kind: AuditKind,
    /// The connection id that the client knows.
    pub thread_id: u32,
    /// When.
    pub at_ns: u64,
    /// When the connection was made, for the end of a session; 0: is not told.
    pub connected_ns: u64,
    /// The connection is encrypted.
    pub is_tls: bool,
    /// The client's address.
    pub client: &'a [u8],
    /// Where it has come in.
    pub proxy: &'a [u8],
    /// The user.
    pub username: &'a [u8],
    /// The schema; empty for none.
    pub schemaname: &'a [u8],
    /// A statement at the admin interface; its secrets are masked when it is written.
    pub statement: &'a [u8],
    /// What else there is to say: why a login was refused, what came of a statement.
    pub extra: &'a [u8],
}

/// A record for the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Statement(Statement<'a>),
    Audit(AuditEvent<'a>),
}

impl<'a> Record<'a> {
    /// Takes the first record off `bytes`; none at their end, or where they are none.
    pub(crate) fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let record = match reader.u8()? {
            STATEMENT => Self::Statement(Statement::decode(&mut reader)?),
            AUDIT => Self::Audit(AuditEvent::decode(&mut reader)?),
            _ => return None,
        };
        *bytes = reader.0;
        Some(record)
    }
}

impl<'a> Statement<'a> {
    /// The logs that it is for, as bits.
    pub(crate) fn logs(&self) -> u8 {
        let events = if self.is_event { Log::Events.bit() } else { 0 };
        let slow = if self.is_slow { Log::Slow.bit() } else { 0 };
        events | slow
    }

    fn texts(&self) -> [&'a [u8]; 6] {
        [self.client, self.server, self.username, self.schemaname, self.query, self.error]
    }

    /// More than [`Statement::encode`] takes.
    pub(crate) fn size_bytes(&self) -> usize {
        STATEMENT_BYTES + self.texts().iter().map(|text| text.len()).sum::<usize>()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let command = match self.command {
            Command::Query => 0,
            Command::Prepare => 1,
            Command::Execute => 2,
        };
        out.extend_from_slice(&[STATEMENT, self.logs(), command]);
        out.extend_from_slice(&self.thread_id.to_le_bytes());
        out.extend_from_slice(&self.statement_id.to_le_bytes());
        out.extend_from_slice(&self.errno.to_le_bytes());
        let hostgroup = self.hostgroup.map_or(u64::MAX, u64::from);
        let numbers = [
            hostgroup,
            self.begun_ns,
            self.ended_ns,
            u64::from(self.digest.is_some()),
            self.digest.unwrap_or(0),
            self.rows_affected,
            self.rows_sent,
            self.last_insert_id,
            self.query_bytes,
        ];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        self.texts().into_iter().for_each(|text| put_text(out, text));
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Self> {
        let logs = reader.u8()?;
        let command = match reader.u8()? {
            0 => Command::Query,
            1 => Command::Prepare,
            _ => Command::Execute,
        };
        let (thread_id, statement_id) = (reader.u32()?, reader.u32()?);
        let errno = u16::from_le_bytes(reader.array()?);
        let hostgroup = u32::try_from(reader.u64()?).ok();
        let (begun_ns, ended_ns) = (reader.u64()?, reader.u64()?);
        let (has_digest, digest) = (reader.u64()?, reader.u64()?);
        Some(Self {
            is_event: logs & Log::Events.bit() != 0,
            is_slow: logs & Log::Slow.bit() != 0,
            command,
            thread_id,
            hostgroup,
            begun_ns,
            ended_ns,
            digest: (has_digest != 0).then_some(digest),
            errno,
            rows_affected: reader.u64()?,
            rows_sent: reader.u64()?,
            last_insert_id: reader.u64()?,
            statement_id,
            query_bytes: reader.u64()?,
            client: reader.text()?,
            server: reader.text()?,
            username: reader.text()?,
            schemaname: reader.text()?,
            query: reader.text()?,
            error: reader.text()?,
        })
    }
}

impl<'a> AuditEvent<'a> {
    fn texts(&self) -> [&'a [u8]; 6] {
        [self.client, self.proxy, self.username, self.schemaname, self.statement, self.extra]
    }

    /// More than [`AuditEvent::encode`] takes.
    pub(crate) fn size_bytes(&self) -> usize {
        AUDIT_BYTES + self.texts().iter().map(|text| text.len()).sum::<usize>()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let kind = AuditKind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        out.extend_from_slice(&[AUDIT, kind as u8, u8::from(self.is_tls)]);
        out.extend_from_slice(&self.thread_id.to_le_bytes());
        out.extend_from_slice(&self.at_ns.to_le_bytes());
        out.extend_from_slice(&self.connected_ns.to_le_bytes());
        self.texts().into_iter().for_each(|text| put_text(out, text));
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self {
            kind: AuditKind::ALL.get(usize::from(reader.u8()?)).copied()?,
            is_tls: reader.u8()? != 0,
            thread_id: reader.u32()?,
            at_ns: reader.u64()?,
            connected_ns: reader.u64()?,
            client: reader.text()?,
            proxy: reader.text()?,
            username: reader.text()?,
            schemaname: reader.text()?,
            statement: reader.text()?,
            extra: reader.text()?,
        })
    }
}

/// A text of 4 GiB has been refused long before.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(text);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.bytes(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_as_they_went_in() {
        let statement = Statement {
            is_slow: true,
            command: Command::Execute,
            thread_id: 7,
            hostgroup: Some(10),
            begun_ns: 1,
            ended_ns: u64::MAX,
            digest: Some(0),
            errno: 1062,
            rows_affected: 3,
            rows_sent: 4,
            last_insert_id: 5,
            statement_id: 6,
            query_bytes: 8,
            client: b"127.0.0.1:1",
            query: b"SELECT \xFF",
            error: b"no",
            ..Statement::default()
        };
        let mut bytes = Vec::new();
        statement.encode(&mut bytes);
        assert!(bytes.len() <= statement.size_bytes());
        for kind in AuditKind::ALL {
            AuditEvent { kind, is_tls: true, username: b"app", ..AuditEvent::default() }.encode(&mut bytes);
        }
        let mut rest = &bytes[..];
        assert_eq!(Record::take(&mut rest), Some(Record::Statement(statement)));
        for kind in AuditKind::ALL {
            let event = AuditEvent { kind, is_tls: true, username: b"app", ..AuditEvent::default() };
            assert!(event.size_bytes() >= AUDIT_BYTES);
            assert_eq!(Record::take(&mut rest), Some(Record::Audit(event)));
        }
        assert_eq!(Record::take(&mut rest), None);
        let mut cut = &bytes[..bytes.len() / 20];
        assert_eq!(Record::take(&mut cut), None);
    }
}
