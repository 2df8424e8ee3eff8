//! Loads or makes the RSA key with which clients of caching_sha2_password seal their passwords where there is no TLS:
//! the user's, or one made when it is first needed and kept in datadir, under the names that MySQL gives such files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_config::{Config, Password, private_file};
use weir_protocol::auth::rsa::{KeyError, RsaKey};

const PRIVATE_FILE: &str = "caching_sha2_private_key.pem";
/// For clients that are to know the key beforehand (`--server-public-key-path`).
const PUBLIC_FILE: &str = "caching_sha2_public_key.pem";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RsaKeyError {
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("{path}: {error}")]
    Key { path: PathBuf, error: KeyError },
}

/// The key, if some user's password can't be checked without one: only a salted hash of it is known, as may be of those
/// that the servers have.
pub(crate) fn rsa_key(config: &Config, datadir: &Path) -> Result<Option<Arc<RsaKey>>, RsaKeyError> {
    let needs_key = |password: &Password| matches!(password, Password::Sha2Hash(_));
    let follows = config.weir_hostgroups.iter().any(|row| row.follow_accounts);
    if !follows && !config.users.iter().any(|user| user.active && needs_key(&user.password)) {
        return Ok(None);
    }
    let path = datadir.join(PRIVATE_FILE);
    let key = match std::fs::read_to_string(&path) {
        Ok(text) => RsaKey::from_pem(&text).map_err(|error| RsaKeyError::Key { path, error })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(datadir, &path)?,
        Err(error) => return Err(RsaKeyError::File { path, error }),
    };
    Ok(Some(Arc::new(key)))
}

fn make(datadir: &Path, path: &Path) -> Result<RsaKey, RsaKeyError> {
    let file = |path: &Path| {
        let path = path.to_path_buf();
        move |error| RsaKeyError::File { path, error }
    };
    let (key, text) =
        RsaKey::generate().map_err(|error| RsaKeyError::Key { path: path.to_path_buf(), error })?;
    std::fs::create_dir_all(datadir).map_err(file(datadir))?;
    private_file::write(path, &text).map_err(file(path))?;
    let public = datadir.join(PUBLIC_FILE);
    std::fs::write(&public, key.public_pem()).map_err(file(&public))?;
    tracing::info!(key = %path.display(), "made an RSA key for caching_sha2_password");
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use weir_config::parse;

    fn config(password: &str) -> Config {
        let text = format!(
            "[[mysql_servers]]\nhostgroup_id = 0\nhostname = \"db1\"\n\
             [[mysql_users]]\nusername = \"app\"\npassword = \"{password}\"\n"
        );
        parse(&text, "weir.toml").unwrap()
    }

    #[test]
    fn a_key_is_made_when_a_hash_needs_it_and_kept() {
        let datadir = tempfile::tempdir().unwrap();
        let datadir = datadir.path().join("new");
        assert!(rsa_key(&config("clear"), &datadir).unwrap().is_none());
        assert!(!datadir.exists());
        let hashed = config(&format!("$A$005${}", "s".repeat(63)));
        let first = rsa_key(&hashed, &datadir).unwrap().unwrap();
        let mode = std::fs::metadata(datadir.join(PRIVATE_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(datadir.join(PUBLIC_FILE)).unwrap(), first.public_pem());
        assert_eq!(rsa_key(&hashed, &datadir).unwrap().unwrap().public_pem(), first.public_pem());
        std::fs::write(datadir.join(PRIVATE_FILE), "nonsense").unwrap();
        let error = rsa_key(&hashed, &datadir).unwrap_err().to_string();
        assert!(error.contains(PRIVATE_FILE) && error.contains("openssl pkcs8"), "{error}");
    }
}
