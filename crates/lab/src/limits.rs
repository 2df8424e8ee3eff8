//! Raises the limit of open files: ten thousand clients are more than a shell allows by default.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Error;

/// Raises the limit of open files to what is needed; programs started later inherit it.
///
/// # Errors
/// If it can't be raised so far.
pub fn allow_open_files(needed: u64) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if raised.is_ok() && limit.maximum.is_none_or(|maximum| maximum >= needed) {
        return Ok(());
    }
    Err(Error::Impossible(format!(
        "{needed} open files are needed, and the limit is {}: raise it (ulimit -Hn)",
        limit.maximum.unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beyond_every_limit_are_refused_in_words() {
        allow_open_files(10).unwrap();
        let limit = getrlimit(Resource::Nofile).maximum;
        if let Some(maximum) = limit {
            let error = allow_open_files(maximum + 1).unwrap_err().to_string();
            assert!(error.contains(&maximum.to_string()), "{error}");
        }
    }
}
