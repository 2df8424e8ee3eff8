//! Writes the text of a prepared statement with the parameters of one execution in it.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::StmtExecute;
use weir_protocol::resultset::ColumnType;
use weir_protocol::wire::Reader;
use weir_session::prepared::{ClientStatement, LongData};
use weir_sql::{Dialect, Lexer, TokenKind, literal};

/// None if one of them is of a type, or has a value, that can't be said in every session alike.
pub(crate) fn as_text(
    statement: &ClientStatement,
    payload: &[u8],
    capabilities: Capabilities,
    dialect: Dialect,
) -> Option<Vec<u8>> {
    if statement.long_data != LongData::None {
        return None;
    }
    let text = statement.original.as_deref().unwrap_or(statement.prepared.text());
    let parameters = StmtExecute::parameters(payload, statement.params, capabilities).ok()?;
    let types = match parameters.new_params_bound {
        true => payload.get(parameters.types)?,
        false => statement.types.as_deref().unwrap_or_default(),
    };
    let nulls = payload.get(parameters.null_bitmap)?;
    let mut values = Reader::new(payload.get(parameters.values)?);
    let is_named = capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
    let mut types = Reader::new(types);
    let mut out = Vec::with_capacity(text.len() + 32);
    let mut lexer = Lexer::new(text, dialect);
    let (mut at, mut index) = (0, 0);
    loop {
        let token = lexer.token();
        match token.kind {
            TokenKind::End => break,
            TokenKind::Placeholder => {
                let is_null = nulls.get(index / 8)? & (1 << (index % 8)) != 0;
                let kind = types.fixed(2).ok()?;
                if is_named {
                    types.lenenc_bytes().ok()?;
                }
                out.extend_from_slice(text.get(at..token.start())?);
                out.extend_from_slice(value(&mut values, kind, is_null)?.as_bytes());
                at = token.end();
                index += 1;
            }
            _ => {}
        }
    }
    out.extend_from_slice(text.get(at..)?);
    (index == usize::from(statement.params)).then_some(out)
}

/// One value, as it stands in a text.
fn value(values: &mut Reader<'_>, kind: &[u8], is_null: bool) -> Option<String> {
    if is_null {
        return Some("NULL".to_owned());
    }
    let is_unsigned = kind.get(1)? & 0x80 != 0;
    Some(match ColumnType(*kind.first()?) {
        ColumnType::NULL => "NULL".to_owned(),
        ColumnType::TINY if is_unsigned => values.u8().ok()?.to_string(),
        ColumnType::TINY => (values.u8().ok()? as i8).to_string(),
        ColumnType::SHORT | ColumnType::YEAR if is_unsigned => values.u16().ok()?.to_string(),
        ColumnType::SHORT | ColumnType::YEAR => (values.u16().ok()? as i16).to_string(),
        ColumnType::LONG | ColumnType::INT24 if is_unsigned => values.u32().ok()?.to_string(),
        ColumnType::LONG | ColumnType::INT24 => (values.u32().ok()? as i32).to_string(),
        ColumnType::LONGLONG if is_unsigned => values.u64().ok()?.to_string(),
        ColumnType::LONGLONG => (values.u64().ok()? as i64).to_string(),
        ColumnType::VARCHAR | ColumnType::VAR_STRING | ColumnType::STRING | ColumnType::BLOB => {
            literal::plain(std::str::from_utf8(values.lenenc_bytes().ok()?).ok()?)?
        }
        _ => return None,
    })
}
