//! Finds obstacles to an eviction before anything happens.

use std::fmt;

use super::Membership;

/// The greatest `evs.inactive_check_period`, `evs.keepalive_period` and `evs.join_retrans_period` with which an
/// eviction was seen to be over soon, in milliseconds.
const PERIOD_MS_MAX: u64 = 100;

/// The provider options with which evictions were measured, for `wsrep_provider_options` of every node's my.cnf.
pub const MEASURED_OPTIONS: &str = "evs.inactive_check_period=PT0.1S; evs.keepalive_period=PT0.1S; evs.suspect_timeout=PT2S; \
    evs.inactive_timeout=PT4S; evs.join_retrans_period=PT0.1S; evs.install_timeout=PT4S";

/// Why a node's cluster can't be helped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The account may not set provider options.
    NoPrivilege {
        /// The account's name.
        user: String,
    },
    /// The node refuses an empty change of its provider options, for another reason.
    Refuses {
        /// The node's words.
        cause: String,
    },
    /// Nobody answers where the node listens for its group: that nobody does would prove nothing.
    GroupPortSilent {
        /// Address and port.
        address: String,
    },
    /// A provider option is not as it has to be.
    Option {
        /// Its name.
        name: &'static str,
        /// What it is now, in milliseconds; none if the node does not say.
        is_ms: Option<u64>,
        /// How it should be.
        wanted: Wanted,
    },
    /// The minority goes on (`pc.ignore_quorum`, `pc.ignore_sb`), so nothing tells the survivors from the others.
    IgnoresQuorum,
    /// Something that eviction was never tried with.
    Untried {
        /// In words.
        what: String,
    },
}

/// The required value of a provider option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// At most so many milliseconds.
    AtMost(u64),
    /// At least `evs.inactive_timeout`, which is so many milliseconds.
    AtLeastInactiveTimeout(u64),
}

impl Membership {
    /// What speaks against evicting anybody from this node's group, as far as the node itself says so.
    pub fn obstacles(&self) -> Vec<Obstacle> {
        let provider = &self.provider;
        let periods = [
            ("evs.inactive_check_period", provider.inactive_check_ms),
            ("evs.keepalive_period", provider.keepalive_ms),
            ("evs.join_retrans_period", provider.join_retrans_ms),
        ];
        let mut obstacles: Vec<Obstacle> = periods
            .into_iter()
            .filter(|(_, is_ms)| is_ms.is_none_or(|is_ms| is_ms > PERIOD_MS_MAX))
            .map(|(name, is_ms)| Obstacle::Option { name, is_ms, wanted: Wanted::AtMost(PERIOD_MS_MAX) })
            .collect();
        // A view that is given up before all have agreed on who is inactive starts the agreement anew.
        let inactive_ms = provider.inactive_ms.unwrap_or(0);
        if provider.install_ms.is_none_or(|install_ms| install_ms < inactive_ms) {
            let wanted = Wanted::AtLeastInactiveTimeout(inactive_ms);
            obstacles.push(Obstacle::Option {
                name: "evs.install_timeout",
                is_ms: provider.install_ms,
                wanted,
            });
        }
        if provider.ignores_quorum {
            obstacles.push(Obstacle::IgnoresQuorum);
        }
        if provider.has_tls {
            obstacles.push(Obstacle::Untried { what: "TLS between the nodes".to_owned() });
        }
        if provider.segment != 0 {
            let what = format!("gmcast.segment = {}", provider.segment);
            obstacles.push(Obstacle::Untried { what });
        }
        // The packages of Debian say 4.23 for 26.4.23.
        if !provider.version.starts_with("26.4.") && !provider.version.starts_with("4.") {
            let what = format!("the provider's version {:?}", provider.version);
            obstacles.push(Obstacle::Untried { what });
        }
        obstacles
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPrivilege { user } => {
                write!(f, "the account {user} may not set wsrep_provider_options (it needs SUPER)")
            }
            Self::Refuses { cause } => write!(f, "wsrep_provider_options can't be set: {cause}"),
            Self::GroupPortSilent { address } => {
                write!(f, "nothing answers at {address}, its address for the group")
            }
            Self::Option { name, is_ms, wanted } => {
                match is_ms {
                    Some(is_ms) => write!(f, "{name} is {}", period(*is_ms))?,
                    None => write!(f, "{name} is not known")?,
                }
                match wanted {
                    Wanted::AtMost(ms) => write!(f, ", more than {}", period(*ms)),
                    Wanted::AtLeastInactiveTimeout(ms) => {
                        write!(f, ", less than evs.inactive_timeout ({})", period(*ms))
                    }
                }
            }
            Self::IgnoresQuorum => f.write_str("pc.ignore_quorum or pc.ignore_sb is on"),
            Self::Untried { what } => write!(f, "{what}: eviction is untested with that"),
        }
    }
}

/// Milliseconds as Galera writes them.
fn period(ms: u64) -> String {
    let (whole, rest) = (ms / 1000, ms % 1000);
    if rest == 0 {
        return format!("PT{whole}S");
    }
    let fraction = format!("{rest:03}");
    format!("PT{whole}.{}S", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Provider;

    fn fit() -> Membership {
        let provider = Provider {
            version: "26.4.23(r1)".to_owned(),
            inactive_check_ms: Some(100),
            keepalive_ms: Some(100),
            join_retrans_ms: Some(100),
            inactive_ms: Some(4000),
            install_ms: Some(4000),
            ..Provider::default()
        };
        Membership { provider, ..Membership::default() }
    }

    fn words(change: impl FnOnce(&mut Provider)) -> Vec<String> {
        let mut membership = fit();
        change(&mut membership.provider);
        membership.obstacles().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_obstacle_has_its_words() {
        assert!(words(|_| {}).is_empty());
        assert!(words(|provider| provider.version = "4.23(rXXXX)".to_owned()).is_empty());
        let check = words(|provider| provider.inactive_check_ms = Some(500));
        assert_eq!(check, ["evs.inactive_check_period is PT0.5S, more than PT0.1S"]);
        let silent = words(|provider| provider.keepalive_ms = None);
        assert_eq!(silent, ["evs.keepalive_period is not known, more than PT0.1S"]);
        let install = words(|provider| provider.install_ms = Some(2000));
        assert_eq!(install, ["evs.install_timeout is PT2S, less than evs.inactive_timeout (PT4S)"]);
        assert_eq!(words(|provider| provider.ignores_quorum = true).len(), 1);
        assert_eq!(words(|provider| provider.has_tls = true).len(), 1);
        let segment = words(|provider| provider.segment = 1);
        assert_eq!(segment, ["gmcast.segment = 1: eviction is untested with that"]);
        assert_eq!(words(|provider| provider.version = "3.27".to_owned()).len(), 1);
        assert_eq!(Membership::default().obstacles().len(), 5, "a node that says nothing");
    }
}
