//! Gives the fuzzer its entry points: any bytes, no panic, and what is accepted is sane.

use crate::{parse, read_cnf};

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

/// Reads `data` as a file of ProxySQL and checks that its rows have lines.
///
/// # Panics
/// If an invariant of [`crate::CnfFile`] or of its faults is broken; that is what the fuzzer looks for.
pub fn fuzz_cnf(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let is_sane = |error: &crate::ConfigError| {
        error.line <= lines && !error.reason.is_empty() && !error.reason.contains('\n')
    };
    match read_cnf(text, "fuzz.cnf") {
        Ok(file) => {
            assert!(file.warnings.iter().all(is_sane));
            for (table, rows) in file.rows.tables().filter(|(table, _)| *table != "global_variables") {
                assert!((0..rows.len()).all(|index| (1..=lines).contains(&file.lines.of_row(table, index))));
            }
            for name in file.rows.variables().keys() {
                assert!((1..=lines).contains(&file.lines.of_fault(name)));
            }
        }
        Err(errors) => assert!(!errors.is_empty() && errors.iter().all(is_sane)),
    }
}
