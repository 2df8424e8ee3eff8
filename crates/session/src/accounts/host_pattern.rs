//! Matches clients with the host part of an account's name.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientHost {
    /// It has come through a Unix socket.
    Local,
    /// It has come from this address.
    At(IpAddr),
}

/// The host part of an account's name. Ordered from the most specific to the least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    text: Cow<'static, str>,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// `localhost`: a Unix socket, or an address of the loopback network.
    Localhost,
    Address(IpAddr),
    /// `10.0.0.0/255.255.0.0` or `10.0.0.0/16`: the first so many bits.
    Network(IpAddr, u8),
    /// `%` and `_` stand for parts of the address as text.
    Wildcards,
    /// The name of a host: names are not looked up, so nobody is known to be there.
    Name,
}

impl HostPattern {
    /// `%`: from everywhere.
    pub const ANY: Self = Self { text: Cow::Borrowed("%"), form: Form::Wildcards };

    /// Reads the text in the server's table of accounts; nothing stands for `%`.
    pub fn parse(text: &str) -> Self {
        if matches!(text, "" | "%") {
            return Self::ANY;
        }
        let form = if text.eq_ignore_ascii_case("localhost") {
            Form::Localhost
        } else if let Ok(address) = text.parse::<IpAddr>() {
            Form::Address(address.to_canonical())
        } else if let Some(network) = network(text) {
            network
        } else if text.contains(['%', '_']) {
            Form::Wildcards
        } else {
            Form::Name
        };
        Self { text: Cow::Owned(text.to_owned()), form }
    }

    /// The text, as SHOW GRANTS has it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether nobody matches because names of hosts are not looked up.
    pub fn is_name(&self) -> bool {
        match self.form {
            Form::Name => true,
            // `%.example.com`: no address has letters; hexadecimal digits are those of IPv6.
            Form::Wildcards => {
                self.text.contains(|c: char| c.is_ascii_alphabetic() && !c.is_ascii_hexdigit())
            }
            Form::Localhost | Form::Address(_) | Form::Network(..) => false,
        }
    }

    /// Whether a client there is meant.
    pub fn matches(&self, client: ClientHost) -> bool {
        let address = match client {
            ClientHost::Local => {
                return matches!(self.form, Form::Localhost) || self.matches_text("localhost");
            }
            ClientHost::At(address) => address.to_canonical(),
        };
        match &self.form {
            Form::Localhost => address.is_loopback(),
            Form::Address(here) => *here == address,
            Form::Network(network, bits) => is_in(address, *network, *bits),
            Form::Wildcards => {
                self.matches_text(&address.to_string())
                    || (address.is_loopback() && self.matches_text("localhost"))
            }
            Form::Name => false,
        }
    }

    /// Whether it comes before `other`, whatever the two say.
    pub fn is_more_specific_than(&self, other: &Self) -> bool {
        self.rank() < other.rank()
    }

    fn matches_text(&self, host: &str) -> bool {
        matches!(self.form, Form::Wildcards) && is_like(self.text.as_bytes(), host.as_bytes())
    }

    /// The most specific first: addresses and names, networks by their size, wildcards by what stands before the first.
    fn rank(&self) -> (u8, usize) {
        match self.form {
            Form::Localhost | Form::Address(_) | Form::Name => (0, 0),
            Form::Network(_, bits) => (1, usize::from(u8::MAX - bits)),
            Form::Wildcards if self.text == "%" => (3, 0),
            Form::Wildcards => {
                let known = self.text.find(['%', '_']).unwrap_or(self.text.len());
                (2, usize::MAX - known)
            }
        }
    }
}

impl Ord for HostPattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| self.text.cmp(&other.text))
    }
}

impl PartialOrd for HostPattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `ADDRESS/MASK`, the mask as an address without gaps, or as a number of bits.
fn network(text: &str) -> Option<Form> {
    let (address, mask) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let bits = match mask.parse::<IpAddr>() {
        Ok(IpAddr::V4(mask)) if address.is_ipv4() => {
            let mask = u32::from(mask);
            let bits = mask.leading_ones();
            (mask.checked_shl(bits).unwrap_or(0) == 0).then_some(bits)?
        }
        Ok(_) => return None,
        Err(_) => mask.parse().ok().filter(|bits| *bits <= bits_max)?,
    };
    Some(Form::Network(address, u8::try_from(bits).ok()?))
}

fn is_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let differs = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => u128::from(u32::from(one) ^ u32::from(other)) << 96,
        (IpAddr::V6(one), IpAddr::V6(other)) => u128::from(one) ^ u128::from(other),
        _ => return false,
    };
    differs.leading_zeros() >= u32::from(bits)
}

/// SQL's LIKE, whatever the case of letters is; `\` takes the meaning from a wildcard. In time linear in the product of
/// the lengths: after a mismatch only the last `%` takes one more.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    let (mut in_pattern, mut in_text) = (0, 0);
    let mut last_percent: Option<(usize, usize)> = None;
    while in_text < text.len() {
        let step = match pattern.get(in_pattern) {
            Some(b'%') => {
                last_percent = Some((in_pattern + 1, in_text));
                in_pattern += 1;
                continue;
            }
            Some(b'_') => Some(1),
            Some(b'\\') => {
                let literal = pattern.get(in_pattern + 1);
                literal.is_some_and(|byte| byte.eq_ignore_ascii_case(&text[in_text])).then_some(2)
            }
            Some(byte) => byte.eq_ignore_ascii_case(&text[in_text]).then_some(1),
            None => None,
        };
        match (step, &mut last_percent) {
            (Some(len), _) => {
                in_pattern += len;
                in_text += 1;
            }
            (None, Some((behind, taken))) => {
                *taken += 1;
                (in_pattern, in_text) = (*behind, *taken);
            }
            (None, None) => return false,
        }
    }
    pattern.get(in_pattern..).unwrap_or_default().iter().all(|byte| *byte == b'%')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> ClientHost {
        ClientHost::At(text.parse().unwrap_or(IpAddr::from([0; 4])))
    }

    #[test]
    fn clients_match_as_at_a_server() {
        let cases = [
            ("%", "10.1.2.3", true),
            ("", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.30", false),
            ("10.1.2.3", "::ffff:10.1.2.3", true),
            ("10.1.%", "10.1.2.3", true),
            ("10.1.%", "10.10.2.3", false),
            ("10.1.2._", "10.1.2.3", true),
            ("10.1.2._", "10.1.2.33", false),
            ("%.2.3", "10.1.2.3", true),
            ("%1%2%4", "10.1.2.3", false),
            ("10.1.0.0/255.255.0.0", "10.1.200.3", true),
            ("10.1.0.0/255.255.0.0", "10.2.0.3", false),
            ("10.1.0.0/16", "10.1.200.3", true),
            ("0.0.0.0/0", "10.1.200.3", true),
            ("0.0.0.0/0.0.0.0", "10.1.200.3", true),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.2", false),
            ("2001:db8::/32", "2001:db8:1::5", true),
            ("2001:db8::/32", "2001:db9::5", false),
            ("2001:db8::/32", "10.1.2.3", false),
            ("localhost", "127.0.0.1", true),
            ("localhost", "10.1.2.3", false),
            ("LOCAL%", "127.0.0.1", true),
            ("web1.example", "10.1.2.3", false),
            ("%.example", "10.1.2.3", false),
            ("10.1.0.0/255.0.255.0", "10.1.2.3", false),
            ("10.1.0.0/33", "10.1.2.3", false),
        ];
        for (pattern, client, expected) in cases {
            assert_eq!(HostPattern::parse(pattern).matches(at(client)), expected, "{pattern} {client}");
        }
        for (pattern, expected) in
            [("localhost", true), ("%", true), ("127.0.0.1", false), ("l_calhost", true)]
        {
            assert_eq!(HostPattern::parse(pattern).matches(ClientHost::Local), expected, "{pattern}");
        }
    }

    #[test]
    fn names_of_hosts_are_told_apart() {
        for name in ["web1.example", "%.example.com", "web_", "web1"] {
            assert!(HostPattern::parse(name).is_name(), "{name}");
        }
        for other in ["%", "10.%", "localhost", "fe80::%", "10.0.0.0/8", "::1"] {
            assert!(!HostPattern::parse(other).is_name(), "{other}");
        }
    }

    #[test]
    fn the_most_specific_comes_first() {
        let sorted =
            ["10.1.2.3", "localhost", "10.1.2.0/24", "10.1.0.0/16", "10.1.2.%", "10.1.%", "%.3", "%"];
        let mut patterns: Vec<HostPattern> =
            sorted.iter().rev().map(|text| HostPattern::parse(text)).collect();
        patterns.sort();
        assert_eq!(patterns.iter().map(HostPattern::as_str).collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn a_pattern_of_wildcards_is_read_in_little_time() {
        let pattern = HostPattern::parse(&"%1".repeat(200));
        assert!(!pattern.matches(at("1111:1111:1111:1111:1111:1111:1111:1112")));
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_and_its_own_address_matches(text in ".{0,40}", address in any::<u32>()) {
            let client = IpAddr::from(std::net::Ipv4Addr::from(address));
            let pattern = HostPattern::parse(&text);
            let _ = (pattern.matches(ClientHost::At(client)), pattern.matches(ClientHost::Local), pattern.is_name());
            let own = HostPattern::parse(&client.to_string());
            prop_assert!(own.matches(ClientHost::At(client)));
            for bits in [0, 8, 31, 32] {
                let network = HostPattern::parse(&format!("{client}/{bits}"));
                prop_assert!(network.matches(ClientHost::At(client)));
            }
        }
    }
}
