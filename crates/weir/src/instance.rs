//! Names this Weir among those in front of the same clusters.

use std::io;
use std::path::{Path, PathBuf};

use weir_config::private_file;

/// A longer text is no name that Weir has made.
const NAME_BYTES_MAX: usize = 100;

/// The name that an earlier run has left in `datadir`, or a new one: the host's name and a random number. A datadir that
/// was copied to another host gets another name there, since no two Weirs may have the same.
///
/// # Errors
/// When the file can't be read or written.
pub(crate) fn instance_name(datadir: &Path) -> io::Result<String> {
    let prefix = prefix();
    match std::fs::read_to_string(path(datadir)) {
        Ok(text) if is_name(text.trim(), &prefix) => return Ok(text.trim().to_owned()),
        Ok(_) => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {}
        Err(error) => return Err(error),
    }
    new_instance_name(datadir)
}

/// A name that no Weir has had, from now on the one of `datadir`.
///
/// # Errors
/// When the file can't be written, or the system has no randomness.
pub(crate) fn new_instance_name(datadir: &Path) -> io::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let name = format!("{}{:016x}", prefix(), u64::from_be_bytes(random));
    private_file::replace(&path(datadir), &format!("{name}\n"))?;
    Ok(name)
}

/// A name that this Weir has taken while it runs is from now on the one of `datadir`. It is written by a thread of its own:
/// a disk that hangs holds up no role.
pub(crate) fn save(datadir: &Path, name: &str) {
    let (path, text) = (path(datadir), format!("{name}\n"));
    let write = move || {
        if let Err(error) = private_file::replace(&path, &text) {
            tracing::error!(path = %path.display(), %error, "this Weir's new name can't be saved");
        }
    };
    if let Err(cause) = std::thread::Builder::new().name("instance".to_owned()).spawn(write) {
        tracing::error!(%cause, "can't start a thread");
    }
}

fn path(datadir: &Path) -> PathBuf {
    datadir.join("instance")
}

fn prefix() -> String {
    format!("{}-", host_name())
}

fn is_name(text: &str, prefix: &str) -> bool {
    let number = text.strip_prefix(prefix);
    text.len() <= NAME_BYTES_MAX
        && number
            .is_some_and(|number| number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The host's name without what is not for a table: letters, digits, '-', '_' and '.' of it, at most 64.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = name.chars().filter(plain).take(64).collect();
    if name.is_empty() { "weir".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_and_is_not_taken_from_another_host() {
        let dir = std::env::temp_dir().join(format!("weir-instance-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let name = instance_name(&dir).unwrap();
        assert_eq!(instance_name(&dir).unwrap(), name);
        assert!(name.starts_with(&host_name()) && name.len() <= NAME_BYTES_MAX, "{name}");
        for foreign in ["elsewhere-0123456789abcdef", "", "\u{0}", &"x".repeat(1000), &name[..name.len() - 1]]
        {
            std::fs::write(dir.join("instance"), foreign).unwrap();
            let other = instance_name(&dir).unwrap();
            assert!(other != name && other != foreign, "{foreign:?} {other}");
        }
        let next = new_instance_name(&dir).unwrap();
        assert!(next != name && instance_name(&dir).unwrap() == next);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
