//! Declares the networks whose connections may begin with a header of the PROXY protocol: `proxy_protocol_networks`.

use std::fmt;
use std::net::IpAddr;

use crate::field::fields::Fields;
use crate::value::suggest::quotable;

/// The most networks.
const NETWORKS_MAX: usize = 64;
/// The longest text: that many of the longest networks.
const TEXT_CHARS_MAX: usize = 4096;
/// All connections, also those through Unix sockets.
const ALL: &str = "*";
/// Connections through Unix sockets, in MariaDB's word.
const UNIX_SOCKETS: &str = "localhost";

/// The networks of `proxy_protocol_networks`; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyNetworks(Vec<ProxyNetwork>);

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyNetwork {
    /// Everybody.
    All,
    /// Those who come through a Unix socket.
    UnixSockets,
    /// The addresses that begin with the same bits.
    Addresses { first: IpAddr, prefix_bits: u8 },
}

impl ProxyNetworks {
    /// Whether the network of a connection from this address is among them; no address: through a Unix socket.
    pub fn contain(&self, address: Option<IpAddr>) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Reads a comma-separated list.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let networks = parts.map(ProxyNetwork::parse).collect::<Result<Vec<_>, _>>()?;
        if networks.len() > NETWORKS_MAX {
            return Err(format!("more than {NETWORKS_MAX} networks"));
        }
        if networks.len() > 1 && networks.contains(&ProxyNetwork::All) {
            return Err("\"*\" stands for all networks: it must be the only one".to_owned());
        }
        Ok(Self(networks))
    }
}

impl ProxyNetwork {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            ALL => return Ok(Self::All),
            UNIX_SOCKETS => return Ok(Self::UnixSockets),
            _ => {}
        }
        let wrong = || {
            let quoted = quotable(text);
            format!(
                "\"{quoted}\" is no network such as 10.0.0.0/8, no address, and not \"*\" or \"localhost\""
            )
        };
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits_max = if first.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            None => bits_max,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= bits_max).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        Ok(Self::Addresses { first, prefix_bits })
    }

    fn contains(self, address: Option<IpAddr>) -> bool {
        // A listener on [::] sees IPv4's addresses inside IPv6's.
        match (self, address.map(|address| address.to_canonical())) {
            (Self::All, _) | (Self::UnixSockets, None) => true,
            (Self::Addresses { first: IpAddr::V4(first), prefix_bits }, Some(IpAddr::V4(address))) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(prefix_bits)
            }
            (Self::Addresses { first: IpAddr::V6(first), prefix_bits }, Some(IpAddr::V6(address))) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(prefix_bits)
            }
            _ => false,
        }
    }
}

impl fmt::Display for ProxyNetworks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, network) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match network {
                ProxyNetwork::All => f.write_str(ALL)?,
                ProxyNetwork::UnixSockets => f.write_str(UNIX_SOCKETS)?,
                ProxyNetwork::Addresses { first, prefix_bits } => write!(f, "{first}/{prefix_bits}")?,
            }
        }
        Ok(())
    }
}

/// The networks of a variable; none if there is a fault or nothing is given.
pub(crate) fn proxy_networks(f: &mut Fields<'_, '_>, name: &'static str) -> Option<ProxyNetworks> {
    let text = f.optional_text(name, TEXT_CHARS_MAX)?;
    ProxyNetworks::parse(&text).map_err(|fault| f.refuse(name, fault)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contained(networks: &str, address: &str) -> bool {
        let networks = ProxyNetworks::parse(networks).expect("networks");
        networks.contain((address != "localhost").then(|| address.parse().expect("an address")))
    }

    #[test]
    fn an_address_is_in_the_networks_that_begin_as_it_does() {
        for (networks, within, outside) in [
            ("", &[][..], &["127.0.0.1", "::1", "localhost"][..]),
            ("*", &["127.0.0.1", "2001:db8::1", "localhost"], &[]),
            ("0.0.0.0/0", &["127.0.0.1", "::ffff:10.0.0.1"], &["::1", "localhost"]),
            ("::/0", &["::1", "2001:db8::1"], &["127.0.0.1", "::ffff:10.0.0.1", "localhost"]),
            ("10.1.2.3", &["10.1.2.3", "::ffff:10.1.2.3"], &["10.1.2.2", "::a01:203"]),
            ("10.1.2.3/15", &["10.0.0.0", "10.1.255.255"], &["10.2.0.0", "9.255.255.255"]),
            ("192.168.0.0/16, localhost", &["192.168.7.7", "localhost"], &["192.169.0.0"]),
            ("2001:db8::/33,::1", &["2001:db8:7fff::", "::1"], &["2001:db8:8000::", "::2"]),
        ] {
            for address in within {
                assert!(contained(networks, address), "{address} is not in {networks}");
            }
            for address in outside {
                assert!(!contained(networks, address), "{address} is in {networks}");
            }
        }
    }

    #[test]
    fn a_list_is_written_as_it_is_read() {
        for (text, written) in [
            ("", ""),
            (" , ", ""),
            ("*", "*"),
            (" 10.0.0.0/8 ,localhost,::1", "10.0.0.0/8,localhost,::1/128"),
        ] {
            let networks = ProxyNetworks::parse(text).expect("networks");
            assert_eq!(networks.to_string(), written);
            assert_eq!(ProxyNetworks::parse(written), Ok(networks));
        }
    }

    #[test]
    fn faults_of_networks() {
        for text in [
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0/8",
            "lb.example.com",
            "10.0.0.1;::1",
        ] {
            let fault = ProxyNetworks::parse(text).expect_err(text);
            assert!(fault.starts_with(&format!("\"{text}\" is no network such as")), "{fault}");
        }
        assert!(
            ProxyNetworks::parse("*,10.0.0.0/8").is_err_and(|fault| fault.contains("must be the only one"))
        );
        let many = vec!["10.0.0.1"; 65].join(",");
        assert_eq!(ProxyNetworks::parse(&many), Err("more than 64 networks".to_owned()));
    }
}
