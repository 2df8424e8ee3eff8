//! Keeps the text of prepared statements, and runs it anew each time.

use std::collections::HashMap;

use rusqlite::types::Value;
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{StmtExecute, StmtLongData};
use weir_protocol::error;
use weir_protocol::resultset::ColumnType;
use weir_protocol::wire::{Malformed, Reader};

use crate::error::SqlError;
use crate::limits::{LONG_DATA_BYTES_MAX, PREPARED_MAX};

/// Flag of a parameter's type.
const UNSIGNED: u8 = 0x80;

/// A session's prepared statements.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    last_id: u32,
    statements: HashMap<u32, Statement>,
    long_data_bytes: usize,
}

#[derive(Debug)]
struct Statement {
    text: String,
    parameters: u16,
    /// Of the last execution that sent them.
    types: Vec<[u8; 2]>,
    long_data: HashMap<u16, Vec<u8>>,
    /// COM_STMT_SEND_LONG_DATA is not answered: what was wrong with it is told at the execution.
    fault: Option<SqlError>,
}

impl Prepared {
    /// Keeps a statement.
    pub(crate) fn insert(&mut self, text: String, parameters: u16) -> Result<u32, SqlError> {
        if self.statements.len() >= PREPARED_MAX {
            return Err(SqlError::new(
                error::MAX_PREPARED_STMT_COUNT_REACHED,
                format!("a connection may have {PREPARED_MAX} prepared statements here"),
            ));
        }
        self.last_id = self.last_id.wrapping_add(1);
        let statement =
            Statement { text, parameters, types: Vec::new(), long_data: HashMap::new(), fault: None };
        self.statements.insert(self.last_id, statement);
        Ok(self.last_id)
    }

    pub(crate) fn close(&mut self, id: u32) {
        self.reset(id);
        self.statements.remove(&id);
    }

    /// Forgets long data. False if there is no such statement.
    pub(crate) fn reset(&mut self, id: u32) -> bool {
        let Some(statement) = self.statements.get_mut(&id) else { return false };
        statement.fault = None;
        self.long_data_bytes -= statement.long_data.drain().map(|(_, data)| data.len()).sum::<usize>();
        true
    }

    /// A piece of a parameter.
    pub(crate) fn long_data(&mut self, payload: &[u8]) {
        let Ok(head) = StmtLongData::parse(payload) else { return };
        let data = payload.get(StmtLongData::LEN..).unwrap_or_default();
        let Some(statement) = self.statements.get_mut(&head.stmt_id) else { return };
        if head.param >= statement.parameters || self.long_data_bytes + data.len() > LONG_DATA_BYTES_MAX {
            statement.fault.get_or_insert_with(|| {
                SqlError::new(
                    error::WRONG_ARGUMENTS,
                    "too much data, or data for a parameter that does not exist",
                )
            });
            return;
        }
        self.long_data_bytes += data.len();
        statement.long_data.entry(head.param).or_default().extend_from_slice(data);
    }

    /// The text and the parameters of a COM_STMT_EXECUTE.
    pub(crate) fn execute(&mut self, payload: &[u8]) -> Result<(String, Vec<Value>), SqlError> {
        let malformed =
            |_: Malformed| SqlError::new(error::MALFORMED_PACKET, "Malformed communication packet");
        let head = StmtExecute::parse(payload).map_err(malformed)?;
        let unknown = || {
            let message = format!("Unknown prepared statement handler ({}) given to execute", head.stmt_id);
            SqlError::new(error::UNKNOWN_STMT_HANDLER, message)
        };
        let statement = self.statements.get_mut(&head.stmt_id).ok_or_else(unknown)?;
        let values = values(statement, payload);
        let (text, fault) = (statement.text.clone(), statement.fault.take());
        self.reset(head.stmt_id);
        match fault {
            Some(fault) => Err(fault),
            None => Ok((text, values.map_err(malformed)?)),
        }
    }
}

fn values(statement: &mut Statement, payload: &[u8]) -> Result<Vec<Value>, Malformed> {
    let parameters = StmtExecute::parameters(payload, statement.parameters, Capabilities::empty())?;
    if parameters.new_params_bound {
        let types = payload.get(parameters.types).unwrap_or_default();
        statement.types = types.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
    }
    let nulls = payload.get(parameters.null_bitmap).unwrap_or_default();
    let mut reader = Reader::new(payload.get(parameters.values).unwrap_or_default());
    (0..statement.parameters)
        .map(|at| {
            if let Some(data) = statement.long_data.get(&at) {
                return Ok(Value::Text(String::from_utf8_lossy(data).into_owned()));
            }
            let byte = nulls.get(usize::from(at / 8)).copied().unwrap_or_default();
            if byte & (1 << (at % 8)) != 0 {
                return Ok(Value::Null);
            }
            let [code, flags] = statement.types.get(usize::from(at)).copied().ok_or(Malformed::Truncated)?;
            value(&mut reader, ColumnType(code), flags & UNSIGNED != 0)
        })
        .collect()
}

/// A value in the binary protocol.
fn value(reader: &mut Reader<'_>, kind: ColumnType, is_unsigned: bool) -> Result<Value, Malformed> {
    Ok(match kind {
        ColumnType::NULL => Value::Null,
        ColumnType::TINY => {
            let byte = reader.u8()?;
            Value::Integer(if is_unsigned { byte.into() } else { (byte as i8).into() })
        }
        ColumnType::SHORT | ColumnType::YEAR => {
            let word = reader.u16()?;
            Value::Integer(if is_unsigned { word.into() } else { (word as i16).into() })
        }
        ColumnType::LONG | ColumnType::INT24 => {
            let word = reader.u32()?;
            Value::Integer(if is_unsigned { word.into() } else { (word as i32).into() })
        }
        ColumnType::LONGLONG => match reader.u64()? {
            word if is_unsigned => i64::try_from(word).map_or(Value::Text(word.to_string()), Value::Integer),
            word => Value::Integer(word as i64),
        },
        ColumnType::FLOAT => Value::Real(f32::from_bits(reader.u32()?).into()),
        ColumnType::DOUBLE => Value::Real(f64::from_bits(reader.u64()?)),
        ColumnType::DATE | ColumnType::DATETIME | ColumnType::TIMESTAMP => Value::Text(moment(reader)?),
        ColumnType::TIME => {
            let len = reader.u8()?;
            reader.skip(len.into())?;
            // No column of the admin interface is a time of day.
            return Err(Malformed::UnexpectedHeader(ColumnType::TIME.0));
        }
        _ => Value::Text(String::from_utf8_lossy(reader.lenenc_bytes()?).into_owned()),
    })
}

/// `2026-11-21 20:45:31`
fn moment(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let len = reader.u8()?;
    let mut part = Reader::new(reader.fixed(len.into())?);
    let (year, month, day) = if len >= 4 { (part.u16()?, part.u8()?, part.u8()?) } else { (0, 0, 0) };
    let date = format!("{year:04}-{month:02}-{day:02}");
    if len < 7 {
        return Ok(date);
    }
    Ok(format!("{date} {:02}:{:02}:{:02}", part.u8()?, part.u8()?, part.u8()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execute(id: u8, rest: &[u8]) -> Vec<u8> {
        [&[0x17, id, 0, 0, 0, 0, 1, 0, 0, 0], rest].concat()
    }

    #[test]
    fn parameters_of_all_kinds_are_read() {
        let mut prepared = Prepared::default();
        let id = prepared.insert("SELECT ?, ?, ?, ?".into(), 4).unwrap();
        let bytes =
            [&[0b0000_0010, 1, 8, 0, 8, 0, 253, 0, 1, 0][..], &[1, 0, 0, 0, 0, 0, 0, 0], b"\x02db", &[0xFF]];
        let (text, values) = prepared.execute(&execute(id as u8, &bytes.concat())).unwrap();
        assert_eq!(text, "SELECT ?, ?, ?, ?");
        let expected = [Value::Integer(1), Value::Null, Value::Text("db".into()), Value::Integer(-1)];
        assert_eq!(values, expected);
    }

    #[test]
    fn long_data_is_used_once_and_limited() {
        let mut prepared = Prepared::default();
        let id = prepared.insert("SELECT ?".into(), 1).unwrap() as u8;
        prepared.long_data(&[0x18, id, 0, 0, 0, 0, 0, b'a']);
        prepared.long_data(&[0x18, id, 0, 0, 0, 0, 0, b'b']);
        let again = execute(id, &[0, 1, 253, 0, 1, b'x']);
        let of = |prepared: &mut Prepared| prepared.execute(&again).map(|(_, values)| values);
        assert_eq!(of(&mut prepared), Ok(vec![Value::Text("ab".into())]));
        assert_eq!(of(&mut prepared), Ok(vec![Value::Text("x".into())]));
        let much = [&[0x18, id, 0, 0, 0, 0, 0][..], &vec![b'x'; LONG_DATA_BYTES_MAX + 1]].concat();
        prepared.long_data(&much);
        assert_eq!(of(&mut prepared).unwrap_err().error, error::WRONG_ARGUMENTS);
        assert!(of(&mut prepared).is_ok());
    }

    #[test]
    fn broken_packets_and_unknown_statements_are_errors() {
        let mut prepared = Prepared::default();
        let id = prepared.insert("SELECT ?".into(), 1).unwrap() as u8;
        for payload in [&[0x17][..], &execute(id, &[]), &execute(id, &[0, 1, 253, 0, 9, b'x'])] {
            assert_eq!(prepared.execute(payload).unwrap_err().error, error::MALFORMED_PACKET);
        }
        assert_eq!(prepared.execute(&execute(9, &[])).unwrap_err().error, error::UNKNOWN_STMT_HANDLER);
    }
}
