//! Handles query attributes, which clients with QUERY_ATTRIBUTES send beside the text of a COM_QUERY.
//!
//! A session that has the capability runs on connections that have it (see [`crate::pool::identity::IDENTITY_CAPABILITIES`]), so a
//! COM_STMT_EXECUTE passes as it is. Of a COM_QUERY all else looks at the text only: the attributes are taken out of the command
//! when it begins, and go in front of the text again when it is sent.

use weir_protocol::command::{NO_QUERY_ATTRIBUTES, query_attributes_len};
use weir_protocol::error;
use weir_protocol::frame::{HEADER_LEN, Header};

use crate::work::Work;

impl Work<'_> {
    /// Takes the attributes out of the COM_QUERY at the front of the inbox. False if they are none: the client has been
    /// told.
    pub(crate) fn take_query_attributes(&mut self) -> bool {
        let session = &mut *self.session;
        if !session.has_query_attributes() {
            return true;
        }
        let start = HEADER_LEN + 1;
        let rest = session.input.inbox.get(start..session.input.command_bytes).unwrap_or_default();
        let (Ok(len), Some(header)) = (query_attributes_len(rest), Header::parse(&session.input.inbox))
        else {
            let message = match session.input.upload {
                Some(_) => "Malformed communication packet (query attributes, or more than 1 MB of them)",
                None => "Malformed communication packet (query attributes)",
            };
            self.answer_error(error::MALFORMED_PACKET, message);
            return false;
        };
        let attributes = &rest[..len];
        session.execution.text.attributes = (attributes != NO_QUERY_ATTRIBUTES).then(|| attributes.into());
        session.execution.text.is_bare = true;
        let header = Header { len: header.len - len, ..header };
        session.input.inbox[..HEADER_LEN].copy_from_slice(&header.encode());
        session.input.inbox.drain(start..start + len);
        session.input.command_bytes -= len;
        true
    }
}
