//! Notes the tests that a machine can't run because it lacks something.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Names the file in which what was not run is gathered: `make test` shows it at its end (`scripts/not-run`).
pub const NOT_RUN_FILE: &str = "WEIR_NOT_RUN";

/// Notes that something is not tested here, and why: nobody reads what tests that pass have said.
pub fn not_run(what: &str, why: &str) {
    let line = line(what, why);
    eprint!("not run: {line}");
    let Some(path) = env::var_os(NOT_RUN_FILE) else { return };
    if let Err(error) = append(Path::new(&path), &line) {
        eprintln!("{}: {error}", path.display());
    }
}

fn line(what: &str, why: &str) -> String {
    format!("{what}: {}\n", why.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// One write for a line: others write, too.
fn append(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn said(path: &Path) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/not-run");
        let output = Command::new(script).arg(path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn what_was_not_run_is_told_once_with_the_reason() {
        let path = env::temp_dir().join(format!("weir-not-run-{}", std::process::id()));
        assert_eq!(said(&path), "not run on this machine: nothing, all tests were run whole\n");
        for (what, why) in
            [("the ring", "no\n io_uring"), ("a full disk", "not root"), ("the ring", "no io_uring")]
        {
            append(&path, &line(what, why)).unwrap();
        }
        let told = said(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(told, "not run on this machine:\n  a full disk: not root\n  the ring: no io_uring\n");
    }
}
