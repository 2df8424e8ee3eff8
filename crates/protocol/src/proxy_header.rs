//! Reads and writes the header of the PROXY protocol, by which a proxy tells for whom it has connected.
//!
//! The header stands in front of everything else that the connecting side sends: a line of text (version 1) or bytes
//! (version 2). HAProxy's `doc/proxy-protocol.txt` is its specification; its sections are cited as "PROXY 2.1" and so on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::frame::HEADER_LEN;

/// How a header of version 1 begins (PROXY 2.1).
const SIGNATURE_V1: &[u8] = b"PROXY ";
/// How a header of version 2 begins (PROXY 2.2).
const SIGNATURE_V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header of version 1, its CR and LF included (PROXY 2.1).
const V1_BYTES_MAX: usize = 107;
/// Bytes of a header of version 2 in front of its addresses.
const V2_FIXED_BYTES: usize = 16;
/// The longest header that is read. Addresses take 52 bytes, or 232 for Unix sockets; what is beyond them are extensions
/// (TLVs) such as the names in a client's certificate.
pub const HEADER_BYTES_MAX: usize = 4096;

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// No header.
    Absent,
    /// A part of a header, or too little to tell.
    Incomplete,
    /// A header of so many bytes.
    Header {
        /// Its bytes.
        len: usize,
        /// For whom the proxy speaks.
        client: ProxiedClient,
    },
}

/// For whom a proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxiedClient {
    /// For itself, as in a health check, or it does not know (`LOCAL`, `UNKNOWN`, `AF_UNSPEC`).
    Unknown,
    /// For a client that has connected to it from this address. IPv4 in IPv6 (`::ffff:10.0.0.1`) is IPv4.
    Tcp(SocketAddr),
    /// For a client that has connected to it through a Unix socket.
    Unix,
}

/// A header that breaks the specification, or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProxyHeaderError {
    /// It begins like a header and goes on otherwise.
    #[error("it only begins like one")]
    Signature,
    /// Version 1: no CR LF within 107 bytes, or one of them alone.
    #[error("version 1: no CR LF where the line must end")]
    LineEnd,
    /// Version 1: not the fields that there must be, separated by one space each.
    #[error("version 1: not PROXY, TCP4 or TCP6, two addresses and two ports")]
    Fields,
    /// Version 2: the version or the command is another one.
    #[error("version 2: 0x{0:02X} is no version and command")]
    Command(u8),
    /// Version 2: no address family and transport that a client of a stream can have.
    #[error("version 2: 0x{0:02X} is no address family with a stream")]
    Family(u8),
    /// Version 2: shorter than the addresses of its family.
    #[error("version 2: {0} bytes are too few for the addresses")]
    TooShort(usize),
    /// Version 2: longer than what is read.
    #[error("version 2: {0} bytes are more than {HEADER_BYTES_MAX}")]
    TooLong(usize),
}

/// Whether bytes begin like a header, for which four of them do: none of them is the length of a packet with which a client
/// of MySQL could begin.
pub fn begins(bytes: &[u8]) -> bool {
    let head = bytes.get(..HEADER_LEN);
    head.is_some() && (head == SIGNATURE_V1.get(..HEADER_LEN) || head == SIGNATURE_V2.get(..HEADER_LEN))
}

/// Looks at the first bytes of a connection. The same bytes with more behind them give the same, but for
/// [`Opening::Incomplete`].
///
/// # Errors
/// What is wrong with a header.
pub fn parse(bytes: &[u8]) -> Result<Opening, ProxyHeaderError> {
    let head = &bytes[..bytes.len().min(HEADER_LEN)];
    if SIGNATURE_V1.starts_with(head) || SIGNATURE_V2.starts_with(head) {
        return match bytes {
            _ if head.len() < HEADER_LEN => Ok(Opening::Incomplete),
            _ if SIGNATURE_V1.starts_with(head) => parse_v1(bytes),
            _ => parse_v2(bytes),
        };
    }
    Ok(Opening::Absent)
}

/// Whether `bytes` are the signature, or may still become it.
fn is_signature(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(byte, wanted)| byte == wanted)
}

fn parse_v1(bytes: &[u8]) -> Result<Opening, ProxyHeaderError> {
    if !is_signature(bytes, SIGNATURE_V1) {
        return Err(ProxyHeaderError::Signature);
    }
    let line = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = line.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return if line.len() < V1_BYTES_MAX {
            Ok(Opening::Incomplete)
        } else {
            Err(ProxyHeaderError::LineEnd)
        };
    };
    let (text, line_end) = line.split_at(end);
    match line_end {
        [b'\r'] if line.len() < V1_BYTES_MAX => return Ok(Opening::Incomplete),
        [b'\r', b'\n', ..] => {}
        _ => return Err(ProxyHeaderError::LineEnd),
    }
    let fields = text.strip_prefix(SIGNATURE_V1).and_then(|fields| std::str::from_utf8(fields).ok());
    let client = client_v1(fields.unwrap_or_default()).ok_or(ProxyHeaderError::Fields)?;
    Ok(Opening::Header { len: end + 2, client })
}

/// The fields behind `PROXY `. What follows UNKNOWN is to be ignored (PROXY 2.1).
fn client_v1(fields: &str) -> Option<ProxiedClient> {
    let mut fields = fields.split(' ');
    let family = fields.next()?;
    if family == "UNKNOWN" {
        return Some(ProxiedClient::Unknown);
    }
    let (source, target) = (fields.next()?, fields.next()?);
    let (port, _) = (port(fields.next()?)?, port(fields.next()?)?);
    let (ip, _): (IpAddr, IpAddr) = match family {
        "TCP4" => (source.parse::<Ipv4Addr>().ok()?.into(), target.parse::<Ipv4Addr>().ok()?.into()),
        "TCP6" => (source.parse::<Ipv6Addr>().ok()?.into(), target.parse::<Ipv6Addr>().ok()?.into()),
        _ => return None,
    };
    fields.next().is_none().then(|| ProxiedClient::Tcp(SocketAddr::new(ip.to_canonical(), port)))
}

/// A port in decimal digits, without zeros in front (PROXY 2.1).
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    is_plain.then(|| text.parse().ok()).flatten()
}

fn parse_v2(bytes: &[u8]) -> Result<Opening, ProxyHeaderError> {
    if !is_signature(bytes, SIGNATURE_V2) {
        return Err(ProxyHeaderError::Signature);
    }
    let command = bytes.get(SIGNATURE_V2.len()).copied();
    let is_local = match command {
        None => return Ok(Opening::Incomplete),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(other) => return Err(ProxyHeaderError::Command(other)),
    };
    let Some(&[family, high, low]) = bytes.get(SIGNATURE_V2.len() + 1..V2_FIXED_BYTES) else {
        return Ok(Opening::Incomplete);
    };
    let body_len = usize::from(u16::from_be_bytes([high, low]));
    let len = V2_FIXED_BYTES + body_len;
    if len > HEADER_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong(len));
    }
    let Some(body) = bytes.get(V2_FIXED_BYTES..len) else {
        return Ok(Opening::Incomplete);
    };
    // The rest of a LOCAL is to be ignored, its family included (PROXY 2.2).
    let client = if is_local { ProxiedClient::Unknown } else { client_v2(family, body)? };
    Ok(Opening::Header { len, client })
}

/// The client in the addresses of a family; what is behind them are extensions.
fn client_v2(family: u8, body: &[u8]) -> Result<ProxiedClient, ProxyHeaderError> {
    let too_short = ProxyHeaderError::TooShort(body.len());
    let tcp = |ip: IpAddr, port: &[u8; 2]| {
        ProxiedClient::Tcp(SocketAddr::new(ip.to_canonical(), u16::from_be_bytes(*port)))
    };
    match family {
        // Addresses of IPv4: source, destination, source port, destination port.
        0x11 => {
            let (source, rest) = body.split_first_chunk::<4>().ok_or(too_short)?;
            let (_, ports) = rest.split_first_chunk::<4>().ok_or(too_short)?;
            let (port, _) =
                ports.split_first_chunk::<2>().filter(|(_, rest)| rest.len() >= 2).ok_or(too_short)?;
            Ok(tcp(Ipv4Addr::from(*source).into(), port))
        }
        // The same of IPv6.
        0x21 => {
            let (source, rest) = body.split_first_chunk::<16>().ok_or(too_short)?;
            let (_, ports) = rest.split_first_chunk::<16>().ok_or(too_short)?;
            let (port, _) =
                ports.split_first_chunk::<2>().filter(|(_, rest)| rest.len() >= 2).ok_or(too_short)?;
            Ok(tcp(Ipv6Addr::from(*source).into(), port))
        }
        // Two paths of 108 bytes.
        0x31 if body.len() >= 216 => Ok(ProxiedClient::Unix),
        0x31 => Err(too_short),
        // AF_UNSPEC, or an unspecified transport.
        0x00..=0x02 | 0x10 | 0x20 | 0x30 => Ok(ProxiedClient::Unknown),
        other => Err(ProxyHeaderError::Family(other)),
    }
}

/// Appends a header of version 1: for a client at `client` that has connected to `target`. Where one of them is IPv6, both
/// are written so.
pub fn write_v1(client: SocketAddr, target: SocketAddr, out: &mut Vec<u8>) {
    let family = if is_ipv4(client, target) { "TCP4" } else { "TCP6" };
    let (source, destination) = same_family(client, target);
    let line = format!("PROXY {family} {source} {destination} {} {}\r\n", client.port(), target.port());
    out.extend_from_slice(line.as_bytes());
}

/// The same of version 2.
pub fn write_v2(client: SocketAddr, target: SocketAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE_V2);
    let (family, len): (u8, u16) = if is_ipv4(client, target) { (0x11, 12) } else { (0x21, 36) };
    out.extend_from_slice(&[0x21, family]);
    out.extend_from_slice(&len.to_be_bytes());
    let (source, destination) = same_family(client, target);
    for ip in [source, destination] {
        match ip {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    out.extend_from_slice(&client.port().to_be_bytes());
    out.extend_from_slice(&target.port().to_be_bytes());
}

/// Appends a header of version 1 that speaks for nobody.
pub fn write_unknown_v1(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PROXY UNKNOWN\r\n");
}

/// The same of version 2: LOCAL.
pub fn write_unknown_v2(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE_V2);
    out.extend_from_slice(&[0x20, 0x00, 0x00, 0x00]);
}

fn is_ipv4(client: SocketAddr, target: SocketAddr) -> bool {
    client.ip().to_canonical().is_ipv4() && target.ip().to_canonical().is_ipv4()
}

fn same_family(client: SocketAddr, target: SocketAddr) -> (IpAddr, IpAddr) {
    let (source, destination) = (client.ip().to_canonical(), target.ip().to_canonical());
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V6(_)) => (source.to_ipv6_mapped().into(), destination),
        (IpAddr::V6(_), IpAddr::V4(destination)) => (source, destination.to_ipv6_mapped().into()),
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp(text: &str) -> ProxiedClient {
        ProxiedClient::Tcp(text.parse().expect("an address"))
    }

    fn header(len: usize, client: ProxiedClient) -> Result<Opening, ProxyHeaderError> {
        Ok(Opening::Header { len, client })
    }

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).expect("a short one").to_be_bytes();
        [&SIGNATURE_V2[..], &[command, family], &len, body].concat()
    }

    /// The examples of PROXY 2.1, and those around them.
    #[test]
    fn lines_are_read_as_the_specification_says() {
        let longest = "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
            ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
        assert_eq!(longest.len(), V1_BYTES_MAX);
        let cases = [
            ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", tcp("255.255.255.255:65535")),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 0 3306\r\n", tcp("10.0.0.1:0")),
            ("PROXY TCP6 2001:db8::1 ::1 40000 3306\r\n", tcp("[2001:db8::1]:40000")),
            ("PROXY TCP6 ::ffff:10.0.0.1 ::ffff:10.0.0.2 40000 3306\r\n", tcp("10.0.0.1:40000")),
            ("PROXY UNKNOWN\r\n", ProxiedClient::Unknown),
            ("PROXY UNKNOWN whatever this is\r\n", ProxiedClient::Unknown),
            (longest, ProxiedClient::Unknown),
        ];
        for (text, client) in cases {
            let more = [text.as_bytes(), b"\x20\x00\x00\x01"].concat();
            assert_eq!(parse(&more), header(text.len(), client), "{text}");
            for end in 0..text.len() {
                assert_eq!(parse(&text.as_bytes()[..end]), Ok(Opening::Incomplete), "{end} of {text}");
            }
        }
    }

    #[test]
    fn broken_lines_are_refused() {
        let endless = ["PROXY UNKNOWN ", &"x".repeat(93)].concat();
        let late = ["PROXY UNKNOWN ", &"x".repeat(92), "\r\n"].concat();
        assert_eq!((endless.len(), late.len()), (107, 108));
        let cases = [
            ("PROX\0", ProxyHeaderError::Signature),
            ("PROXYTCP4 ", ProxyHeaderError::Signature),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 1 2\n", ProxyHeaderError::LineEnd),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\r\n", ProxyHeaderError::LineEnd),
            (&endless, ProxyHeaderError::LineEnd),
            (&late, ProxyHeaderError::LineEnd),
            ("PROXY \r\n", ProxyHeaderError::Fields),
            ("PROXY  TCP4 10.0.0.1 10.0.0.2 1 2\r\n", ProxyHeaderError::Fields),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 1\r\n", ProxyHeaderError::Fields),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 1 2 3\r\n", ProxyHeaderError::Fields),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 1 65536\r\n", ProxyHeaderError::Fields),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 01 2\r\n", ProxyHeaderError::Fields),
            ("PROXY TCP4 10.0.0.1 10.0.0.2 +1 2\r\n", ProxyHeaderError::Fields),
            ("PROXY TCP4 10.0.0.1 10.0.0.2  2\r\n", ProxyHeaderError::Fields),
            ("PROXY TCP4 10.0.0.256 10.0.0.2 1 2\r\n", ProxyHeaderError::Fields),
            ("PROXY TCP4 ::1 ::1 1 2\r\n", ProxyHeaderError::Fields),
            ("PROXY TCP6 10.0.0.1 10.0.0.2 1 2\r\n", ProxyHeaderError::Fields),
            ("PROXY UDP4 10.0.0.1 10.0.0.2 1 2\r\n", ProxyHeaderError::Fields),
            ("PROXY UNKNOWNS\r\n", ProxyHeaderError::Fields),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text.as_bytes()), Err(error), "{text:?}");
        }
        assert_eq!(parse(b"PROXY \xFF\r\n"), Err(ProxyHeaderError::Fields));
    }

    #[test]
    fn binary_headers_are_read_as_the_specification_says() {
        let ipv4 = [10, 0, 0, 1, 10, 0, 0, 2, 0x9C, 0x40, 0x0C, 0xEA];
        let mapped =
            [&Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets()[..], &[0; 16], &[0x9C, 0x40, 0, 0]]
                .concat();
        // A TLV of HAProxy's, and one that is not even complete: whoever reads no TLVs passes over all of them.
        let extended = [&ipv4[..], b"\x05\x00\x02ab\x03\xFF"].concat();
        let cases = [
            (v2(0x21, 0x11, &ipv4), tcp("10.0.0.1:40000")),
            (v2(0x21, 0x11, &extended), tcp("10.0.0.1:40000")),
            (v2(0x21, 0x21, &mapped), tcp("10.0.0.1:40000")),
            (v2(0x21, 0x31, &[0; 216]), ProxiedClient::Unix),
            (v2(0x21, 0x00, b""), ProxiedClient::Unknown),
            (v2(0x21, 0x00, b"anything"), ProxiedClient::Unknown),
            (v2(0x20, 0x00, b""), ProxiedClient::Unknown),
            (v2(0x20, 0x11, &ipv4), ProxiedClient::Unknown),
            (v2(0x20, 0xFF, b"anything"), ProxiedClient::Unknown),
            (v2(0x21, 0x00, &[0; HEADER_BYTES_MAX - V2_FIXED_BYTES]), ProxiedClient::Unknown),
        ];
        for (bytes, client) in cases {
            let more = [&bytes[..], b"\x20\x00\x00\x01"].concat();
            assert_eq!(parse(&more), header(bytes.len(), client), "{}", bytes.escape_ascii());
            for end in 0..bytes.len() {
                assert_eq!(
                    parse(&bytes[..end]),
                    Ok(Opening::Incomplete),
                    "{end} of {}",
                    bytes.escape_ascii()
                );
            }
        }
    }

    #[test]
    fn broken_binary_headers_are_refused_as_soon_as_they_are_seen() {
        assert_eq!(parse(b"\r\n\r\nQ"), Err(ProxyHeaderError::Signature));
        for command in [0x00, 0x11, 0x22, 0x2F, 0x31] {
            let error = Err(ProxyHeaderError::Command(command));
            assert_eq!(parse(&[&SIGNATURE_V2[..], &[command]].concat()), error);
        }
        for family in [0x12, 0x22, 0x32, 0x13, 0x40, 0x03, 0xFF] {
            let error = Err(ProxyHeaderError::Family(family));
            assert_eq!(parse(&v2(0x21, family, &[0; 216])), error, "0x{family:02X}");
        }
        for (family, len) in [(0x11, 11), (0x11, 0), (0x11, 9), (0x21, 35), (0x31, 215)] {
            assert_eq!(parse(&v2(0x21, family, &vec![0; len])), Err(ProxyHeaderError::TooShort(len)));
        }
        let long = v2(0x21, 0x00, &[0; HEADER_BYTES_MAX - V2_FIXED_BYTES + 1]);
        let error = Err(ProxyHeaderError::TooLong(HEADER_BYTES_MAX + 1));
        assert_eq!(parse(&long[..V2_FIXED_BYTES]), error, "before any more of it is kept");
    }

    /// What clients of MySQL begin with: requests for TLS and logins, of any length that is let in.
    #[test]
    fn no_login_is_taken_for_a_header() {
        for len in 0..=u16::MAX {
            let [low, high] = len.to_le_bytes();
            let packet = [low, high, 0, 1];
            assert_eq!(parse(&packet), Ok(Opening::Absent), "{len}");
            assert!(!begins(&packet));
        }
        assert_eq!(parse(b""), Ok(Opening::Incomplete));
        assert_eq!(
            (begins(b""), begins(b"PRO"), begins(b"PROX"), begins(b"\r\n\r\n")),
            (false, false, true, true)
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(client: SocketAddr, target: SocketAddr, rest: Vec<u8>) {
            let ip = client.ip().to_canonical();
            let read = ProxiedClient::Tcp(SocketAddr::new(ip, client.port()));
            for write in [write_v1, write_v2] {
                let mut bytes = Vec::new();
                write(client, target, &mut bytes);
                let len = bytes.len();
                prop_assert!(len <= V1_BYTES_MAX);
                bytes.extend_from_slice(&rest);
                prop_assert_eq!(parse(&bytes), header(len, read));
            }
        }

        #[test]
        fn any_bytes_are_read_the_same_piece_by_piece(
            bytes in prop_oneof![
                any::<Vec<u8>>(),
                "PROXY (TCP4|TCP6|UNKNOWN) [0-9.:a-f ]{0,120}\r?\n?".prop_map(String::into_bytes),
                (any::<[u8; 3]>(), any::<Vec<u8>>()).prop_map(|([command, family, len], body)| {
                    [&SIGNATURE_V2[..], &[command & 0x33, family & 0x33, 0, len], &body].concat()
                }),
            ],
        ) {
            let whole = parse(&bytes);
            let mut earlier = Ok(Opening::Incomplete);
            for end in 0..=bytes.len() {
                let now = parse(&bytes[..end]);
                if earlier != Ok(Opening::Incomplete) {
                    prop_assert_eq!(now, earlier, "it changes its mind at {}", end);
                }
                earlier = now;
            }
            prop_assert_eq!(earlier, whole);
        }
    }

    #[test]
    fn a_header_for_nobody_is_read_as_one() {
        for (write, len) in [(write_unknown_v1 as fn(&mut Vec<u8>), 15), (write_unknown_v2, 16)] {
            let mut bytes = Vec::new();
            write(&mut bytes);
            assert_eq!(parse(&bytes), header(len, ProxiedClient::Unknown));
        }
    }
}
