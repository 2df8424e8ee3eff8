//! Finds servers' programs: those of the default versions, or of a directory that the environment names.

use std::env;
use std::path::{Path, PathBuf};

use crate::{TestkitError, cache_dir, preflight};

/// Names a directory with another MariaDB than the system's, as `scripts/get-server` makes it.
const MARIADB_VARIABLE: &str = "WEIR_TEST_MARIADB";
/// Names a directory with another MySQL than the one of `scripts/get-mysql`.
const MYSQL_VARIABLE: &str = "WEIR_TEST_MYSQL";
/// Where a directory of `scripts/get-server` has Galera, if that version came with one.
const OWN_GALERA: &str = "galera/libgalera_smm.so";
/// Where distributions put it. It works with every MariaDB that has Galera's interface 26.
const SYSTEM_GALERA: [&str; 2] = ["/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so"];

/// One of MariaDB's programs, and the Debian package that has the default one.
pub(crate) fn mariadb(name: &str, package: &'static str) -> Result<PathBuf, TestkitError> {
    match chosen(MARIADB_VARIABLE) {
        Some(dir) => in_dir(MARIADB_VARIABLE, &dir, name),
        None => preflight::program(name, package),
    }
}

/// Galera, as a library that MariaDB loads.
pub(crate) fn galera() -> Result<PathBuf, TestkitError> {
    let own = chosen(MARIADB_VARIABLE).map(|dir| dir.join(OWN_GALERA)).filter(|path| path.is_file());
    own.map_or_else(|| preflight::library(&SYSTEM_GALERA, "galera-4"), Ok)
}

/// One of MySQL's programs.
pub(crate) fn mysql(name: &str) -> Result<PathBuf, TestkitError> {
    if let Some(dir) = chosen(MYSQL_VARIABLE) {
        return in_dir(MYSQL_VARIABLE, &dir, name);
    }
    let path = cache_dir()?.join("mysql").join("bin").join(name);
    if path.is_file() { Ok(path) } else { Err(TestkitError::NoMysql { path }) }
}

/// The directory that a variable names; an empty one stands for the default.
fn chosen(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

fn in_dir(variable: &str, dir: &Path, name: &str) -> Result<PathBuf, TestkitError> {
    let path = dir.join("bin").join(name);
    if path.is_file() {
        return Ok(path);
    }
    // A run with the default version would look as if it had been one with the version that was asked for.
    Err(TestkitError::Options(format!(
        "{variable} names {dir}, which has no bin/{name}: run scripts/get-server",
        dir = dir.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_not_there_is_not_replaced_by_another() {
        let message = in_dir(MYSQL_VARIABLE, Path::new("/nowhere"), "mysqld").unwrap_err().to_string();
        assert_eq!(
            message,
            "WEIR_TEST_MYSQL names /nowhere, which has no bin/mysqld: run scripts/get-server"
        );
        let sh = in_dir(MARIADB_VARIABLE, Path::new("/"), "sh").unwrap();
        assert_eq!(sh, Path::new("/bin/sh"));
    }
}
