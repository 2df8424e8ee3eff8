//! Reads the address of a server and the account to log in with: `mysql://user[:password]@host[:port][/][?ssl-mode=...]`.
//!
//! The form is that of RFC 3986, with the options that MySQL's own clients know. No error repeats the text: a password may
//! be anywhere in it.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use weir_config::Secret;
use weir_topology::Endpoint;

/// The port of an address that names none.
const PORT: u16 = 3306;
/// A longer text is no address, in bytes.
const URL_BYTES_MAX: usize = 4096;
/// No host's name is longer (RFC 1035), in bytes.
const HOST_BYTES_MAX: usize = 255;
/// MariaDB's limit, in characters; MySQL's is 32.
const USER_CHARS_MAX: usize = 128;
/// How an address begins.
const SCHEME: &str = "mysql://";

/// A server and the account to log in with. Never prints the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// Where the server is.
    pub endpoint: Endpoint,
    /// The account's name.
    pub user: String,
    /// Its password; none if the text has none, which is not the same as an empty one.
    pub password: Option<Secret>,
    /// Whether connections are encrypted.
    pub ssl_mode: SslMode,
    /// The authorities that sign servers' certificates, a PEM file.
    pub ssl_ca: Option<PathBuf>,
}

/// Whether connections are encrypted, with the words of MySQL's clients (`--ssl-mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslMode {
    /// In clear.
    Disabled,
    /// Encrypted where the server offers it.
    #[default]
    Preferred,
    /// Encrypted, whoever the server is.
    Required,
    /// And its certificate is signed by an authority of `ssl-ca`.
    VerifyCa,
    /// And that is the certificate of this host.
    VerifyIdentity,
}

/// Why a text is no address. `at` counts characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another beginning.
    #[error("the address does not begin with mysql://, as in mysql://admin@10.0.0.11:3306")]
    Scheme,
    /// Too long.
    #[error("the address has more than {URL_BYTES_MAX} bytes")]
    TooLong,
    /// No `user@`.
    #[error("the address names no account: mysql://USER@HOST")]
    NoUser,
    /// An `@` behind a slash.
    #[error("character {at} is a / before the @: in a password it is written %2F, as ? is %3F and # is %23")]
    Slash {
        /// Where.
        at: usize,
    },
    /// A name that no server has.
    #[error("the account's name has more than {USER_CHARS_MAX} characters")]
    UserTooLong,
    /// Nothing behind the `@`.
    #[error("the address names no host: mysql://USER@HOST")]
    NoHost,
    /// Something that is neither a name nor an address.
    #[error(
        "character {at}: the host is neither a name nor an address (an IPv6 address is in brackets: [::1])"
    )]
    Host {
        /// Where.
        at: usize,
    },
    /// No port.
    #[error("character {at}: the port is not a number of 1..65535")]
    Port {
        /// Where.
        at: usize,
    },
    /// `%` without two hex digits.
    #[error("character {at}: % is not followed by two hex digits (a % itself is written %25)")]
    Percent {
        /// Where.
        at: usize,
    },
    /// Decoded bytes that are no text.
    #[error("the {0} is not UTF-8 when decoded, or has control characters")]
    NoText(&'static str),
    /// A schema, or a fragment.
    #[error("character {at}: behind the host only ?ssl-mode=... and ?ssl-ca=... may follow")]
    Rest {
        /// Where.
        at: usize,
    },
    /// An option that nobody knows.
    #[error("character {at}: unknown option; there are ssl-mode and ssl-ca")]
    Option {
        /// Where.
        at: usize,
    },
    /// A word that is no mode.
    #[error("ssl-mode is none of disabled, preferred, required, verify_ca, verify_identity")]
    SslMode,
    /// Nothing to verify with.
    #[error("ssl-mode={0} needs ssl-ca=FILE")]
    NoAuthority(SslMode),
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong);
        }
        let has_scheme = text.get(..SCHEME.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(SCHEME));
        let rest = text.get(SCHEME.len()..).filter(|_| has_scheme).ok_or(UrlError::Scheme)?;
        let whole = Part { text, begin: SCHEME.len(), end: SCHEME.len() + rest.len() };
        let (authority, tail) = whole.split_before(['/', '?', '#']);
        let Some((account, place)) = authority.split_last('@') else {
            let slash = tail.str().contains('@').then(|| tail.at());
            return Err(slash.map_or(UrlError::NoUser, |at| UrlError::Slash { at }));
        };
        let (user, password) = match account.split_first(':') {
            Some((user, password)) => (user, Some(password)),
            None => (account, None),
        };
        let user = user.decode("account's name")?;
        if user.is_empty() {
            return Err(UrlError::NoUser);
        }
        if user.chars().count() > USER_CHARS_MAX {
            return Err(UrlError::UserTooLong);
        }
        let password = password.map(|password| password.decode("password")).transpose()?.map(Secret::new);
        let endpoint = place.endpoint()?;
        let (ssl_mode, ssl_ca) = options(tail)?;
        Ok(Self { endpoint, user, password, ssl_mode, ssl_ca })
    }
}

/// As it is read, without the password.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}@{}", Encoded(&self.user), self.endpoint)?;
        let mut separator = "/?";
        if self.ssl_mode != SslMode::default() {
            write!(f, "{separator}ssl-mode={}", self.ssl_mode)?;
            separator = "&";
        }
        if let Some(ca) = &self.ssl_ca {
            write!(f, "{separator}ssl-ca={}", Encoded(&ca.to_string_lossy()))?;
        }
        Ok(())
    }
}

impl SslMode {
    fn of_word(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase().replace('-', "_");
        Some(match word.as_str() {
            "disabled" => Self::Disabled,
            "preferred" => Self::Preferred,
            "required" => Self::Required,
            "verify_ca" => Self::VerifyCa,
            "verify_identity" => Self::VerifyIdentity,
            _ => return None,
        })
    }

    /// Whether a server without TLS is an error.
    pub fn is_required(self) -> bool {
        !matches!(self, Self::Disabled | Self::Preferred)
    }

    /// Whether certificates are looked at.
    pub fn verifies(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyIdentity)
    }
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "disabled",
            Self::Preferred => "preferred",
            Self::Required => "required",
            Self::VerifyCa => "verify_ca",
            Self::VerifyIdentity => "verify_identity",
        })
    }
}

/// A piece of the text that knows where it is.
#[derive(Clone, Copy)]
struct Part<'t> {
    text: &'t str,
    begin: usize,
    end: usize,
}

impl<'t> Part<'t> {
    fn str(self) -> &'t str {
        self.text.get(self.begin..self.end).unwrap_or_default()
    }

    /// Its first character's place.
    fn at(self) -> usize {
        self.at_byte(self.begin)
    }

    fn at_byte(self, byte: usize) -> usize {
        self.text.get(..byte).unwrap_or_default().chars().count() + 1
    }

    fn from(self, begin: usize) -> Self {
        Self { begin: (self.begin + begin).min(self.end), ..self }
    }

    fn up_to(self, end: usize) -> Self {
        Self { end: (self.begin + end).min(self.end), ..self }
    }

    /// What is before the first of these characters, and the rest with it.
    fn split_before<const N: usize>(self, ends: [char; N]) -> (Self, Self) {
        let at = self.str().find(ends).unwrap_or(self.end - self.begin);
        (self.up_to(at), self.from(at))
    }

    /// Around the first of an ASCII character.
    fn split_first(self, separator: char) -> Option<(Self, Self)> {
        self.str().find(separator).map(|at| (self.up_to(at), self.from(at + 1)))
    }

    /// Around the last one.
    fn split_last(self, separator: char) -> Option<(Self, Self)> {
        self.str().rfind(separator).map(|at| (self.up_to(at), self.from(at + 1)))
    }

    /// With what stands for `%41` and the like.
    fn decode(self, what: &'static str) -> Result<String, UrlError> {
        let mut bytes = Vec::with_capacity(self.end - self.begin);
        let mut rest = self.str().bytes().enumerate();
        while let Some((place, byte)) = rest.next() {
            if byte != b'%' {
                bytes.push(byte);
                continue;
            }
            let mut digit = || rest.next().and_then(|(_, byte)| char::from(byte).to_digit(16));
            let (Some(high), Some(low)) = (digit(), digit()) else {
                return Err(UrlError::Percent { at: self.at_byte(self.begin + place) });
            };
            bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
        }
        let text = String::from_utf8(bytes).map_err(|_| UrlError::NoText(what))?;
        if text.contains(char::is_control) { Err(UrlError::NoText(what)) } else { Ok(text) }
    }

    /// `host`, `host:port`, `[v6]`, `[v6]:port`.
    fn endpoint(self) -> Result<Endpoint, UrlError> {
        let is_bracketed = self.str().starts_with('[');
        let (host, port) = match (is_bracketed, self.str().rfind(']')) {
            (true, Some(end)) => (self.up_to(end).from(1), self.from(end + 1)),
            (true, None) => return Err(UrlError::Host { at: self.at() }),
            (false, _) => self.split_before([':']),
        };
        let name = host.str();
        if name.is_empty() {
            return Err(UrlError::NoHost);
        }
        let is_name_char = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_host = match is_bracketed {
            true => name.parse::<Ipv6Addr>().is_ok(),
            false => name.chars().all(is_name_char) && name.len() <= HOST_BYTES_MAX,
        };
        if !is_host {
            return Err(UrlError::Host { at: host.at() });
        }
        let port = match port.str().strip_prefix(':') {
            None if port.str().is_empty() => PORT,
            None => return Err(UrlError::Host { at: port.at() }),
            Some(digits) => {
                let is_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.parse().ok().filter(|number| *number > 0 && is_digits);
                number.ok_or(UrlError::Port { at: port.from(1).at() })?
            }
        };
        Ok(Endpoint::new(name, port))
    }
}

/// `/`, `?name=value&name=value`, or nothing.
fn options(tail: Part<'_>) -> Result<(SslMode, Option<PathBuf>), UrlError> {
    let tail = if tail.str().starts_with('/') { tail.from(1) } else { tail };
    let (mut ssl_mode, mut ssl_ca) = (SslMode::default(), None);
    if tail.str().is_empty() {
        return Ok((ssl_mode, ssl_ca));
    }
    if !tail.str().starts_with('?') {
        return Err(UrlError::Rest { at: tail.at() });
    }
    let mut rest = Some(tail.from(1));
    while let Some(part) = rest {
        let (option, next) = match part.split_first('&') {
            Some((option, next)) => (option, Some(next)),
            None => (part, None),
        };
        rest = next;
        let (name, value) = option.split_first('=').ok_or(UrlError::Option { at: option.at() })?;
        match name.str().to_ascii_lowercase().replace('_', "-").as_str() {
            "ssl-mode" => {
                ssl_mode = SslMode::of_word(&value.decode("ssl-mode")?).ok_or(UrlError::SslMode)?;
            }
            "ssl-ca" => ssl_ca = Some(PathBuf::from(value.decode("path of ssl-ca")?)),
            _ => return Err(UrlError::Option { at: option.at() }),
        }
    }
    if ssl_mode.verifies() && ssl_ca.is_none() {
        return Err(UrlError::NoAuthority(ssl_mode));
    }
    Ok((ssl_mode, ssl_ca))
}

/// A text as it may stand in an address.
struct Encoded<'t>(&'t str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    write!(f, "{}", char::from(byte))?;
                }
                byte => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<ServerUrl, UrlError> {
        text.parse()
    }

    #[test]
    fn an_address_has_an_account_a_host_and_what_else_it_names() {
        let url = read("mysql://admin@10.0.0.11").unwrap();
        assert_eq!((url.endpoint, url.user.as_str()), (Endpoint::new("10.0.0.11", 3306), "admin"));
        assert_eq!((url.password, url.ssl_mode, url.ssl_ca), (None, SslMode::Preferred, None));
        let url = read("MySQL://a%40b:p%2Fw:%3A@[2001:db8::1]:3307/?ssl-mode=VERIFY_CA&ssl-ca=/etc/ca.pem")
            .unwrap();
        assert_eq!((url.endpoint, url.user.as_str()), (Endpoint::new("2001:db8::1", 3307), "a@b"));
        assert_eq!(url.password, Some(Secret::new("p/w::")));
        assert_eq!((url.ssl_mode, url.ssl_ca), (SslMode::VerifyCa, Some("/etc/ca.pem".into())));
        assert_eq!(read("mysql://a:@h/").unwrap().password, Some(Secret::new("")));
        assert_eq!(read("mysql://a:p@w@db-1.example.com:1").unwrap().password, Some(Secret::new("p@w")));
    }

    #[test]
    fn errors_name_the_place_and_never_the_text() {
        use UrlError::{Host, NoHost, NoUser, Option, Percent, Port, Rest, Scheme, Slash};
        for (text, wanted) in [
            ("admin@10.0.0.11", Scheme),
            ("mysql:/admin@h", Scheme),
            ("mysql://10.0.0.11", NoUser),
            ("mysql://@h", NoUser),
            ("mysql://:secret@h", NoUser),
            ("mysql://a:s/ecret@h", Slash { at: 12 }),
            ("mysql://a@", NoHost),
            ("mysql://a@:3306", NoHost),
            ("mysql://a:secret%4@h", Percent { at: 17 }),
            ("mysql://ä:secret%zz@h", Percent { at: 17 }),
            ("mysql://a:secret@h:0", Port { at: 20 }),
            ("mysql://a:secret@h:65536", Port { at: 20 }),
            ("mysql://a:secret@h:+1", Port { at: 20 }),
            ("mysql://a:secret@h:", Port { at: 20 }),
            ("mysql://a:secret@::1", NoHost),
            ("mysql://a:secret@fe80::1", Port { at: 23 }),
            ("mysql://a:secret@[::1", Host { at: 18 }),
            ("mysql://a:secret@[db1]", Host { at: 19 }),
            ("mysql://a:secret@[::1]3306", Host { at: 23 }),
            ("mysql://a:secret@h h", Host { at: 18 }),
            ("mysql://a:secret@h/shop", Rest { at: 20 }),
            ("mysql://a:secret@h#x", Rest { at: 19 }),
            ("mysql://a:secret@h?ssl=1", Option { at: 20 }),
            ("mysql://a:secret@h?ssl-mode=off", UrlError::SslMode),
            ("mysql://a:secret@h?ssl-mode=verify_ca", UrlError::NoAuthority(SslMode::VerifyCa)),
            ("mysql://a:%FF@h", UrlError::NoText("password")),
            ("mysql://a%0A:secret@h", UrlError::NoText("account's name")),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!(error, wanted, "{text}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let long = format!("mysql://a@{}", "h".repeat(URL_BYTES_MAX));
        assert_eq!(read(&long), Err(UrlError::TooLong));
        assert_eq!(read(&format!("mysql://a@{}", "h".repeat(256))), Err(Host { at: 11 }));
        assert_eq!(read(&format!("mysql://{}@h", "a".repeat(129))), Err(UrlError::UserTooLong));
    }

    #[test]
    fn nothing_prints_the_password() {
        let url = read("mysql://admin:secret@h").unwrap();
        assert!(!format!("{url} {url:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn an_address_is_read_as_it_is_written(
            user in "[^\\p{Cc}]{1,40}",
            host in "[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?",
            port in 1..=u16::MAX,
        ) {
            let endpoint = Endpoint::new(&host, port);
            let url = ServerUrl { endpoint, user, password: None, ssl_mode: SslMode::Required, ssl_ca: None };
            prop_assert_eq!(read(&url.to_string()), Ok(url));
        }
    }
}
