//! Entry point for the fuzzer: any bytes, no panic, and what is accepted is sane.

use crate::parse;

/// Parses `data` as a configuration file and checks what callers rely on.
///
/// # Panics
/// If an invariant of [`crate::Config`] or of its faults is broken; that is what the fuzzer looks for.
pub fn fuzz_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse(text, "fuzz.toml") {
        Ok(config) => {
            assert!(!config.variables.interfaces.is_empty());
            assert!(config.servers.iter().all(|server| server.port > 0 && !server.hostname.is_empty()));
            assert!(config.users.iter().all(|user| !user.username.is_empty()));
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            for error in errors {
                assert!(error.line <= lines);
                assert!(!error.reason.is_empty() && !error.reason.contains('\n'));
            }
        }
    }
}
