//! Reads what ProxySQL's binlog reader (`proxysql_binlog_reader`) tells on a server's `gtid_port`: lines of text.
//!
//! | line | the server has executed |
//! | --- | --- |
//! | `ST=UUID:1-5,UUID:1-9` | this set; the first line |
//! | `I1=UUID:NUMBER` | this, too |
//! | `I2=NUMBER` | this, too, of the source that was named last |
//! | `I3=UUID:FROM-TO`, `I4=FROM-TO` | the same with intervals (release 2.3 and later) |
//!
//! Whatever listens there may send anything: what is none of these ends the stream.

use crate::gtid::{GtidFault, GtidSet, Uuid, interval_of};

/// The longest first line. Usual ones are shorter than 1 KiB.
const FIRST_LINE_BYTES_MAX: usize = 1 << 20;
/// The longest of the others.
const LINE_BYTES_MAX: usize = 128;

/// Why a stream is not read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// A line has no end.
    #[error("a line is longer than {FIRST_LINE_BYTES_MAX} bytes, or than {LINE_BYTES_MAX} after the first")]
    LineTooLong,
    /// The first line is not the server's set, or another one is.
    #[error("the set of executed transactions (ST=) has to be the first line, and only that")]
    Order,
    /// It is no binlog reader's.
    #[error("a line is none of a binlog reader's: ST=, I1=, I2=, I3= or I4=")]
    UnknownLine,
    /// A line names no source, and none was named before.
    #[error("a line gives a number, and none before it has named the source")]
    NoSource,
    /// What is behind the equals sign is wrong.
    #[error(transparent)]
    Set(#[from] GtidFault),
}

/// The reading end of such a stream.
#[derive(Debug, Default)]
pub struct GtidStream {
    /// The beginning of a line.
    rest: Vec<u8>,
    /// After the first line: the source that was named last.
    source: Option<Uuid>,
    has_begun: bool,
}

/// What a piece of the stream has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The set that the stream begins with.
    pub first: Option<GtidSet>,
    /// What has been executed since, in order.
    pub more: Vec<(Uuid, u64, u64)>,
}

impl GtidStream {
    /// Takes bytes as they come.
    ///
    /// # Errors
    /// See [`StreamFault`]: nothing more is to be read of the stream.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Told, StreamFault> {
        let mut told = Told::default();
        let mut bytes = bytes;
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            self.check_len(line.len())?;
            if self.rest.is_empty() {
                self.line(line, &mut told)?;
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend_from_slice(line);
                self.line(&whole, &mut told)?;
            }
        }
        self.check_len(bytes.len())?;
        self.rest.extend_from_slice(bytes);
        Ok(told)
    }

    /// Whether the server's set has come.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn check_len(&self, more: usize) -> Result<(), StreamFault> {
        let max = if self.has_begun { LINE_BYTES_MAX } else { FIRST_LINE_BYTES_MAX };
        if self.rest.len() + more > max { Err(StreamFault::LineTooLong) } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8], told: &mut Told) -> Result<(), StreamFault> {
        let (kind, value) = line.split_at_checked(3).ok_or(StreamFault::UnknownLine)?;
        let value = value.trim_ascii();
        match kind {
            b"ST=" if !self.has_begun => {
                told.first = Some(GtidSet::parse(value)?);
                self.has_begun = true;
                return Ok(());
            }
            b"ST=" => return Err(StreamFault::Order),
            b"I1=" | b"I2=" | b"I3=" | b"I4=" if !self.has_begun => return Err(StreamFault::Order),
            _ => {}
        }
        let numbers = match kind {
            b"I1=" | b"I3=" => {
                let colon = value.iter().position(|byte| *byte == b':').ok_or(GtidFault::Malformed)?;
                self.source = Some(Uuid::parse(&value[..colon]).ok_or(GtidFault::Malformed)?);
                &value[colon + 1..]
            }
            b"I2=" | b"I4=" => value,
            _ => return Err(StreamFault::UnknownLine),
        };
        let source = self.source.ok_or(StreamFault::NoSource)?;
        let (from, to) = interval_of(numbers).ok_or(GtidFault::Malformed)?;
        told.more.push((source, from, to));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    /// What is executed after all of the stream, and how many lines have told more.
    fn read(pieces: &[&str]) -> Result<(String, usize), StreamFault> {
        let (mut stream, mut set, mut more) = (GtidStream::default(), GtidSet::default(), 0);
        for piece in pieces {
            let told = stream.take(piece.as_bytes())?;
            set = told.first.unwrap_or(set);
            more += told.more.len();
            for (source, from, to) in told.more {
                set.insert(source, from, to)?;
            }
        }
        Ok((set.to_string(), more))
    }

    #[test]
    fn lines_in_any_pieces() {
        let plain = ONE.replace('-', "");
        let text = format!("ST={ONE}:1-3\nI1={plain}:4\nI2=5\nI3={plain}:6-8\nI4=9-9\nI2=11\n");
        let expected = Ok((format!("{ONE}:1-9,{ONE}:11-11"), 5));
        assert_eq!(read(&[&text]), expected);
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(read(&bytes.iter().map(String::as_str).collect::<Vec<_>>()), expected);
        assert_eq!(read(&["ST=", "\n", &format!("I1={plain}:1\n")]), Ok((format!("{ONE}:1-1"), 1)));
        assert_eq!(read(&[&format!("ST={ONE}:1-3")]), Ok((String::new(), 0)), "the line has no end yet");
    }

    #[test]
    fn what_ends_a_stream() {
        let first = format!("ST={ONE}:1-3\n");
        let malformed = StreamFault::Set(GtidFault::Malformed);
        for (more, fault) in [
            (first.as_str(), StreamFault::Order),
            ("I2=4\n", StreamFault::NoSource),
            ("I1=4\n", malformed),
            ("I1=x:4\n", malformed),
            (&format!("I1={ONE}:\n"), malformed),
            (&format!("I3={ONE}:5-4\n"), malformed),
            ("\n", StreamFault::UnknownLine),
            ("I5=4\n", StreamFault::UnknownLine),
            ("HTTP/1.1 400 Bad Request\r\n", StreamFault::UnknownLine),
            (&"I".repeat(LINE_BYTES_MAX + 1), StreamFault::LineTooLong),
            (&format!("I1={}\n", "0".repeat(LINE_BYTES_MAX)), StreamFault::LineTooLong),
        ] {
            assert_eq!(read(&[&first, more]), Err(fault), "{more:?}");
        }
        assert_eq!(read(&[&format!("I1={ONE}:4\n")]), Err(StreamFault::Order));
        assert_eq!(read(&["ST=x\n"]), Err(malformed));
        let endless = "1".repeat(FIRST_LINE_BYTES_MAX / 2);
        assert_eq!(read(&["ST=", &endless, &endless]), Err(StreamFault::LineTooLong));
    }
}
