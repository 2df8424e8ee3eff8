//! Checks what must hold before servers are started, so that the user reads one clear sentence
//! and not the end of a server's log.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::TestkitError;
use crate::error::PortHolder;

/// Finds a program in `PATH` or in the directories for servers, which are not in every user's `PATH`.
pub fn program(name: &str, package: &'static str) -> Result<PathBuf, TestkitError> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| TestkitError::MissingProgram { program: name.to_owned(), package })
}

/// Finds a file among the places where distributions put it.
pub fn library(candidates: &[&str], package: &'static str) -> Result<PathBuf, TestkitError> {
    candidates.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| {
        TestkitError::MissingProgram {
            program: candidates.first().copied().unwrap_or("a library").to_owned(),
            package,
        }
    })
}

/// Fails with the holder's name if nobody can listen on `address` now.
pub fn port_is_free(address: SocketAddrV4) -> Result<(), TestkitError> {
    match claim(address) {
        Ok(_) => Ok(()),
        Err(Errno::ADDRINUSE) => Err(TestkitError::PortInUse { address, holder: port_holder(address) }),
        Err(error) => Err(TestkitError::Io { doing: format!("listen on {address}"), source: error.into() }),
    }
}

/// Binds `address` without listening there, which fails while somebody listens.
///
/// A socket that listens would not do: another thread may just be starting a process, and until that process has
/// become its program it has copies of all open sockets. The port would be in use after this one is closed.
fn claim(address: SocketAddrV4) -> Result<OwnedFd, Errno> {
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // As servers do. Two such sockets may have one port as long as neither listens.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    Ok(socket)
}

/// A port of `ip` that nobody listens on and that this process has not handed out yet.
///
/// It stays claimed until this process ends, so that the kernel doesn't use it for somebody's outgoing connection,
/// not even while a server on it is restarted.
fn free_port(ip: Ipv4Addr) -> Result<u16, TestkitError> {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static CLAIMED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
    // Several test programs may run at once; each starts somewhere else.
    let offset = std::process::id().wrapping_mul(131);
    for _ in 0..COUNT {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from((offset.wrapping_add(step)) % u32::from(COUNT)).unwrap_or(0);
        if let Ok(socket) = claim(SocketAddrV4::new(ip, port)) {
            CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
            return Ok(port);
        }
    }
    Err(TestkitError::Options(format!("no free port on {ip} between {FIRST} and {}", FIRST + COUNT)))
}

/// An address with such a port.
pub fn free_address(ip: Ipv4Addr) -> Result<SocketAddrV4, TestkitError> {
    Ok(SocketAddrV4::new(ip, free_port(ip)?))
}

/// Fails if less than `needed_mib` of memory is available for `what`.
pub fn memory(what: &str, needed_mib: u64) -> Result<(), TestkitError> {
    let path = "/proc/meminfo";
    let text = fs::read_to_string(path).map_err(TestkitError::io(format!("read {path}")))?;
    let available_mib = text
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        })
        .map_or(u64::MAX, |kib| kib / 1024);
    if available_mib < needed_mib {
        return Err(TestkitError::Memory { what: what.to_owned(), needed_mib, available_mib });
    }
    Ok(())
}

/// Fails if the file system of `dir` has less than `needed_mib` free for this user.
pub fn disk(dir: &Path, needed_mib: u64) -> Result<(), TestkitError> {
    let stat = rustix::fs::statvfs(dir).map_err(|error| TestkitError::Io {
        doing: format!("look at {}", dir.display()),
        source: error.into(),
    })?;
    let available_mib = stat.f_bavail.saturating_mul(stat.f_frsize) / (1024 * 1024);
    if available_mib < needed_mib {
        return Err(TestkitError::Disk { dir: dir.to_owned(), needed_mib, available_mib });
    }
    Ok(())
}

/// Who listens on `address`, or on its port on all addresses.
fn port_holder(address: SocketAddrV4) -> PortHolder {
    let inodes = listening_inodes(address);
    PortHolder { process: processes().into_iter().find_map(|pid| holder_of(pid, &inodes)) }
}

fn holder_of(pid: u32, inodes: &HashSet<String>) -> Option<(u32, String)> {
    let holds = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().any(|fd| {
        fs::read_link(fd.path()).is_ok_and(|target| {
            let target = target.to_string_lossy().into_owned();
            target
                .strip_prefix("socket:[")
                .and_then(|t| t.strip_suffix(']'))
                .is_some_and(|i| inodes.contains(i))
        })
    });
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    holds.then(|| (pid, name.trim().to_owned()))
}

/// The inodes of sockets that listen on the port, at the address or at the wildcard address.
fn listening_inodes(address: SocketAddrV4) -> HashSet<String> {
    // proc(5): addresses are hexadecimal in the host's byte order, state 0A is LISTEN, the tenth field the inode.
    let exact = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    let any_suffix = format!(":{:04X}", address.port());
    let mut inodes = HashSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { continue };
            let wildcard = local.strip_suffix(&any_suffix).is_some_and(|ip| ip.bytes().all(|b| b == b'0'));
            if state == "0A" && (local == exact || wildcard) {
                inodes.insert(inode.to_owned());
            }
        }
    }
    inodes
}

/// The ids of all processes that /proc shows.
pub(crate) fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_port_in_use_names_its_holder() {
        let ip = Ipv4Addr::new(127, 0, 0, 99);
        let port = free_port(ip).unwrap();
        let address = SocketAddrV4::new(ip, port);
        port_is_free(address).unwrap();
        let listener = TcpListener::bind(address).unwrap();
        let message = port_is_free(address).unwrap_err().to_string();
        assert!(
            message.contains(&format!("port {address} is in use by pid {} (", std::process::id())),
            "{message}"
        );
        drop(listener);
        port_is_free(address).unwrap();
    }

    #[test]
    fn a_listener_on_all_addresses_holds_the_port_too() {
        let port = free_port(Ipv4Addr::LOCALHOST).unwrap();
        let _listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 98), port);
        let TestkitError::PortInUse { holder, .. } = port_is_free(address).unwrap_err() else { panic!() };
        assert_eq!(holder.process.unwrap().0, std::process::id());
    }

    #[test]
    fn a_free_port_is_handed_out_once() {
        let ports: HashSet<u16> = (0..50).map(|_| free_port(Ipv4Addr::LOCALHOST).unwrap()).collect();
        assert_eq!(ports.len(), 50);
    }

    #[test]
    fn a_port_that_is_handed_out_can_be_listened_on_again_and_again() {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port(Ipv4Addr::LOCALHOST).unwrap());
        for _ in 0..3 {
            let listener = TcpListener::bind(address).unwrap();
            let _client = TcpStream::connect(address).unwrap();
            // Closed first at this end: a connection in TIME_WAIT stays behind on the port.
            drop(listener.accept().unwrap());
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = program("no-such-program", "some-package").unwrap_err().to_string();
        assert!(message.contains("no-such-program") && message.contains("some-package"), "{message}");
        let message = memory("a giant", u64::MAX).unwrap_err().to_string();
        assert!(message.starts_with("a giant needs about"), "{message}");
        assert!(disk(Path::new("/var/tmp"), u64::MAX).is_err());
        assert!(disk(Path::new("/var/tmp"), 1).is_ok());
    }
}
