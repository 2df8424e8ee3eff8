//! Matches clients with the host part of an account's name, and tells which of two is more specific.

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientHost {
    /// It has come through a Unix socket.
    Local,
    /// It has come from this address.
    At(IpAddr),
}

/// The servers whose rules count. They differ in networks, and in what they call more specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// MariaDB 10.4 and later (`sql_acl.cc`).
    Mariadb,
    /// MySQL 8.0.23 and later (manual, 8.2.4 and 8.2.6).
    Mysql,
}

/// The host part of an account's name. Ordered from the most specific to the least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    text: Box<str>,
    form: Form,
    rank: Rank,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `%` or nothing.
    Anywhere,
    /// `localhost`: a Unix socket, or an address of the loopback network.
    Localhost,
    Address(IpAddr),
    /// An address and a mask: `10.1.0.0/255.255.0.0`, in MySQL also `10.1.0.0/16`.
    Network(Ipv4Addr, u32),
    /// `%` and `_` stand for parts of the address as text.
    Wildcards,
    /// The name of a host, which is not looked up, or what no client's address is written like.
    Name,
}

/// Smaller is more specific: the kind, characters that are none of the wildcards, whether there is a `%`, those in front of
/// the first wildcard.
type Rank = (u8, Reverse<usize>, bool, Reverse<usize>);

impl HostPattern {
    /// Reads the text in the server's table of accounts.
    pub fn parse(text: &str, rules: Rules) -> Self {
        let form = form(text, rules);
        Self { text: text.into(), form, rank: rank(text, form, rules) }
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
            Form::Anywhere | Form::Localhost | Form::Address(_) | Form::Network(..) => false,
        }
    }

    /// Whether a client there is meant.
    pub fn matches(&self, client: ClientHost) -> bool {
        let is_like = |host: &str| is_like(self.text.as_bytes(), host.as_bytes());
        let address = match client {
            ClientHost::Local => {
                return match self.form {
                    Form::Anywhere | Form::Localhost => true,
                    Form::Wildcards => is_like("localhost"),
                    Form::Address(_) | Form::Network(..) | Form::Name => false,
                };
            }
            ClientHost::At(address) => address.to_canonical(),
        };
        match self.form {
            Form::Anywhere => true,
            Form::Localhost => address.is_loopback(),
            Form::Address(here) => here == address,
            Form::Network(network, mask) => match address {
                IpAddr::V4(address) => u32::from(address) & mask == u32::from(network),
                IpAddr::V6(_) => false,
            },
            Form::Wildcards => {
                is_like(&address.to_string()) || (address.is_loopback() && is_like("localhost"))
            }
            Form::Name => false,
        }
    }

    /// Whether it is another's equal, or less, whatever the two say.
    pub fn is_more_specific_than(&self, other: &Self) -> bool {
        self.rank < other.rank
    }
}

fn form(text: &str, rules: Rules) -> Form {
    if matches!(text, "" | "%") {
        return Form::Anywhere;
    }
    if text.eq_ignore_ascii_case("localhost") {
        return Form::Localhost;
    }
    // Servers compare texts: one that is written otherwise matches nobody.
    let address = text.parse::<IpAddr>().ok().filter(|address| address.to_string() == text);
    if let Some(address) = address {
        return Form::Address(address);
    }
    if let Some(network) = network(text, rules) {
        return network;
    }
    if text.contains(['%', '_']) { Form::Wildcards } else { Form::Name }
}

/// `ADDRESS/MASK` of IPv4. Neither server takes a mask of nothing, or an address with more bits than its mask.
fn network(text: &str, rules: Rules) -> Option<Form> {
    let (address, mask) = text.split_once('/')?;
    let address: Ipv4Addr = address.parse().ok()?;
    let mask = match (mask.parse::<Ipv4Addr>(), rules) {
        (Ok(mask), _) => u32::from(mask),
        (Err(_), Rules::Mysql) => {
            let bits: u32 = mask.parse().ok().filter(|bits| (1..=32).contains(bits))?;
            u32::MAX << (32 - bits)
        }
        (Err(_), Rules::Mariadb) => return None,
    };
    (mask != 0 && u32::from(address) & !mask == 0).then_some(Form::Network(address, mask))
}

fn rank(text: &str, form: Form, rules: Rules) -> Rank {
    let exact = |kind| (kind, Reverse(0), false, Reverse(0));
    match (form, rules) {
        (Form::Anywhere, _) => exact(if text.is_empty() { 9 } else { 8 }),
        (Form::Wildcards, _) => {
            let known = text.chars().filter(|c| !matches!(c, '%' | '_')).count();
            let first = text.find(['%', '_']).unwrap_or(text.len());
            // MySQL goes by the first wildcard alone.
            let known = if rules == Rules::Mysql { 0 } else { known };
            (7, Reverse(known), rules == Rules::Mariadb && text.contains('%'), Reverse(first))
        }
        // MariaDB: what has no wildcard is equally specific.
        (_, Rules::Mariadb) => exact(0),
        (Form::Address(_), Rules::Mysql) => exact(0),
        (Form::Network(..), Rules::Mysql) => exact(if text.matches('.').count() > 3 { 2 } else { 1 }),
        (Form::Localhost | Form::Name, Rules::Mysql) => exact(3),
    }
}

impl Ord for HostPattern {
    fn cmp(&self, other: &Self) -> Ordering {
        // Of those that are equally specific servers take the one that comes last as text.
        self.rank.cmp(&other.rank).then_with(|| other.text.cmp(&self.text))
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

    const BOTH: [Rules; 2] = [Rules::Mariadb, Rules::Mysql];

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
            ("127.0.0.0/255.0.0.0", "127.0.0.1", true),
            ("10.1.2.3/255.255.0.0", "10.1.2.3", false),
            ("0.0.0.0/0.0.0.0", "10.1.200.3", false),
            ("0.0.0.0/0", "10.1.200.3", false),
            ("10.1.0.0/33", "10.1.0.0", false),
            ("2001:db8::/32", "2001:db8:1::5", false),
            ("2001:db8::5", "2001:db8::5", true),
            ("0:0:0:0:0:0:0:1", "::1", false),
            ("::ffff:10.1.2.3", "10.1.2.3", false),
            ("localhost", "127.0.0.1", true),
            ("localhost", "10.1.2.3", false),
            ("LOCAL%", "127.0.0.1", true),
            ("web1.example", "10.1.2.3", false),
            ("%.example", "10.1.2.3", false),
        ];
        for (pattern, client, expected) in cases {
            for rules in BOTH {
                let is_match = HostPattern::parse(pattern, rules).matches(at(client));
                assert_eq!(is_match, expected, "{pattern} {client} {rules:?}");
            }
        }
        let with_bits = |rules| HostPattern::parse("10.1.0.0/16", rules).matches(at("10.1.200.3"));
        assert_eq!(BOTH.map(with_bits), [false, true], "MariaDB knows no number of bits");
        for (pattern, expected) in
            [("localhost", true), ("%", true), ("127.0.0.1", false), ("l_calhost", true)]
        {
            assert_eq!(
                HostPattern::parse(pattern, Rules::Mysql).matches(ClientHost::Local),
                expected,
                "{pattern}"
            );
        }
    }

    #[test]
    fn names_of_hosts_are_told_apart() {
        for name in ["web1.example", "%.example.com", "web_", "web1"] {
            assert!(HostPattern::parse(name, Rules::Mysql).is_name(), "{name}");
        }
        for other in ["%", "10.%", "localhost", "fe80::%", "10.0.0.0/8", "::1", ""] {
            assert!(!HostPattern::parse(other, Rules::Mysql).is_name(), "{other}");
        }
    }

    #[test]
    fn the_most_specific_comes_first() {
        let mariadb = [
            "localhost",
            "127.0.0.1",
            "10.1.96.0/255.255.224.0",
            "10.1.100.7",
            "10.1.2._",
            "10.1.2.%",
            "%.2.3.4",
            "10.%",
            "%",
            "",
        ];
        let mysql = [
            "127.0.0.1",
            "10.1.100.7",
            "10.1.0.0/16",
            "10.1.96.0/255.255.224.0",
            "localhost",
            "10.1.2.%",
            "10.1.2._",
            "10.%",
            "%.2.3.4",
            "%",
            "",
        ];
        for (sorted, rules) in [(&mariadb[..], Rules::Mariadb), (&mysql, Rules::Mysql)] {
            let mut patterns: Vec<_> =
                sorted.iter().rev().map(|text| HostPattern::parse(text, rules)).collect();
            patterns.sort();
            let texts: Vec<&str> = patterns.iter().map(HostPattern::as_str).collect();
            let is_tie = |text: &&str| rules == Rules::Mysql && matches!(*text, "10.1.2.%" | "10.1.2._");
            let without_ties = |texts: &[&str]| -> Vec<String> {
                texts.iter().filter(|text| !is_tie(text)).map(|text| (*text).to_owned()).collect()
            };
            assert_eq!(without_ties(&texts), without_ties(sorted), "{rules:?}");
        }
    }

    #[test]
    fn a_pattern_of_wildcards_is_read_in_little_time() {
        let pattern = HostPattern::parse(&"%1".repeat(200), Rules::Mysql);
        assert!(!pattern.matches(at("1111:1111:1111:1111:1111:1111:1111:1112")));
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_and_its_own_address_matches(text in ".{0,40}", address in any::<u32>(), bits in 1..=32) {
            let client = Ipv4Addr::from(address);
            for rules in BOTH {
                let pattern = HostPattern::parse(&text, rules);
                let _ = (pattern.matches(at(&client.to_string())), pattern.matches(ClientHost::Local), pattern.is_name());
                let own = HostPattern::parse(&client.to_string(), rules);
                prop_assert!(own.matches(ClientHost::At(client.into())));
                let mask = u32::MAX << (32 - bits);
                let network = format!("{}/{}", Ipv4Addr::from(address & mask), Ipv4Addr::from(mask));
                let network = HostPattern::parse(&network, rules);
                prop_assert!(network.matches(ClientHost::At(client.into())));
            }
        }
    }
}
