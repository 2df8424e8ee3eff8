//! Makes a network of namespaces in which links can be cut: servers and proxies each in one of their own.
//!
//! ```text
//! hub (probes, sysbench) ── 10.213.0.1 on the switch of all servers ── server n at 10.213.0.(10+n)
//!                       └── 10.214.k.1 ── proxy k at 10.214.k.2, which has 10.213.0.(20+k) on the switch, too
//! ```
//!
//! A partition plugs some of them into another switch. Clients reach their proxy on a cable of their own, whatever
//! happens to the switches. Nothing of it touches the machine's own network.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::Error;
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use weir_testkit::Place;

const SERVERS: u8 = 3;
const PROXIES: u8 = 2;
/// The switch of all, and the one of those that are cut off.
const SWITCH: &str = "br0";
const OTHER_SWITCH: &str = "br1";
/// A hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:99:99";

/// The namespaces; removed with it.
#[derive(Debug)]
pub struct Network {
    prefix: String,
}

/// Something that is plugged into the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// Server n, counted from 1.
    Server(usize),
    /// Proxy k, counted from 1.
    Proxy(u8),
}

impl Network {
    /// Makes it. [`Error::Impossible`] where the machine, or the user, may not.
    pub fn create() -> Result<Network, Error> {
        let network = Network { prefix: format!("weir-{}", std::process::id()) };
        network
            .build()
            .map_err(|error| Error::Impossible(format!("network namespaces can't be made here: {error}")))?;
        Ok(network)
    }

    fn build(&self) -> Result<(), Error> {
        let hub = self.hub();
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "set", "lo", "up"])?;
        for switch in [SWITCH, OTHER_SWITCH] {
            ip(&["-n", &hub, "link", "add", switch, "type", "bridge"])?;
            ip(&["-n", &hub, "link", "set", switch, "up"])?;
        }
        ip(&["-n", &hub, "address", "add", "10.213.0.1/24", "dev", SWITCH])?;
        let servers = (1..=SERVERS).map(|n| Member::Server(usize::from(n)));
        let proxies = (1..=PROXIES).map(Member::Proxy);
        for member in servers.chain(proxies) {
            self.plug_in(member)?;
        }
        for proxy in 1..=PROXIES {
            self.lay_cable(proxy)?;
        }
        Ok(())
    }

    /// A namespace with a link to the switch.
    fn plug_in(&self, member: Member) -> Result<(), Error> {
        let (hub, name, link) = (self.hub(), self.namespace(member), member.link());
        ip(&["netns", "add", &name])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        ip(&["-n", &hub, "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
        ip(&["-n", &hub, "link", "set", &link, "master", SWITCH, "up"])?;
        ip(&["-n", &name, "address", "add", &format!("{}/24", member.address()), "dev", "eth0"])?;
        ip(&["-n", &name, "link", "set", "eth0", "up"])
    }

    /// The link between clients and a proxy.
    fn lay_cable(&self, proxy: u8) -> Result<(), Error> {
        let (hub, name, link) = (self.hub(), self.namespace(Member::Proxy(proxy)), format!("client{proxy}"));
        ip(&["-n", &hub, "link", "add", &link, "type", "veth", "peer", "name", "eth1", "netns", &name])?;
        ip(&["-n", &hub, "address", "add", &format!("10.214.{proxy}.1/30"), "dev", &link])?;
        ip(&["-n", &hub, "link", "set", &link, "up"])?;
        ip(&["-n", &name, "address", "add", &format!("{}/30", client_address(proxy)), "dev", "eth1"])?;
        ip(&["-n", &name, "link", "set", "eth1", "up"])
    }

    /// Moves the calling thread into the hub, and with it every thread and process that it starts.
    pub fn enter(&self) -> Result<(), Error> {
        enter(&self.hub())
    }

    /// Where the servers stand.
    pub fn places(&self) -> Vec<Place> {
        let place = |n: u8| {
            let member = Member::Server(usize::from(n));
            Place { namespace: self.namespace(member), address: member.address() }
        };
        (1..=SERVERS).map(place).collect()
    }

    /// The name of a member's namespace.
    pub fn namespace(&self, member: Member) -> String {
        format!("{}-{}", self.prefix, member.link())
    }

    /// Cuts these off from all others, together.
    pub fn cut_off(&self, members: &[Member]) -> Result<(), Error> {
        self.move_to(OTHER_SWITCH, members)
    }

    /// Ends that.
    pub fn join(&self, members: &[Member]) -> Result<(), Error> {
        self.move_to(SWITCH, members)
    }

    fn move_to(&self, switch: &str, members: &[Member]) -> Result<(), Error> {
        members
            .iter()
            .try_for_each(|member| ip(&["-n", &self.hub(), "link", "set", &member.link(), "master", switch]))
    }

    /// From now on what these two send each other is lost without a word, both ways; nothing else is.
    pub fn break_path(&self, one: Member, other: Member) -> Result<(), Error> {
        for (from, to) in [(one, other), (other, one)] {
            let (name, address) = (self.namespace(from), to.address().to_string());
            ip(&[
                "-n",
                &name,
                "neighbor",
                "replace",
                &address,
                "lladdr",
                NOBODY,
                "dev",
                "eth0",
                "nud",
                "permanent",
            ])?;
        }
        Ok(())
    }

    /// Ends that.
    pub fn mend_path(&self, one: Member, other: Member) -> Result<(), Error> {
        for (from, to) in [(one, other), (other, one)] {
            let (name, address) = (self.namespace(from), to.address().to_string());
            ip(&["-n", &name, "neighbor", "delete", &address, "dev", "eth0"])?;
        }
        Ok(())
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let servers = (1..=SERVERS).map(|n| Member::Server(usize::from(n)));
        let names = servers.chain((1..=PROXIES).map(Member::Proxy)).map(|member| self.namespace(member));
        for name in names.chain([self.hub()]) {
            // One that was not made can't be removed.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

impl Member {
    /// Its address on the switch.
    pub fn address(self) -> Ipv4Addr {
        let last = match self {
            Member::Server(n) => 10 + u8::try_from(n).unwrap_or(0),
            Member::Proxy(k) => 20 + k,
        };
        Ipv4Addr::new(10, 213, 0, last)
    }

    fn link(self) -> String {
        match self {
            Member::Server(n) => format!("server{n}"),
            Member::Proxy(k) => format!("proxy{k}"),
        }
    }
}

/// Moves the calling thread into a namespace, and with it every thread and process that it starts.
pub fn enter(namespace: &str) -> Result<(), Error> {
    let path = format!("/run/netns/{namespace}");
    let file = File::open(&path).map_err(Error::io(format!("open {path}")))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(Error::io(format!("enter {path}")))
}

/// Where clients find a proxy.
pub fn client_address(proxy: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 214, proxy, 2)
}

fn ip(arguments: &[&str]) -> Result<(), Error> {
    let output = Command::new("ip").args(arguments).output().map_err(Error::io("run ip"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Answer {
            what: format!("ip {}", arguments.join(" ")),
            answer: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}
