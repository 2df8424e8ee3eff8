//! Ends Weir when a thread ends that it can't do without. Without a worker its sessions hang, without the
//! topology thread nobody follows roles, and from outside all looks well. So Weir ends with any of them, and its status tells a
//! service manager to start it again.

use std::thread;

/// EX_SOFTWARE in sysexits.h.
const STATUS: i32 = 70;

/// Threads without which Weir goes on: they do one thing for somebody, who is told by its end.
const DISPENSABLE: [&str; 7] =
    ["http", "http asks", "takeover", "successor", "switchover", "failover look", "clear"];
/// The same, with a number behind it.
const NUMBERED: [&str; 2] = ["admin ", "run "];

/// From now on a panic of a thread that Weir can't do without ends the process.
pub(crate) fn watch() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        let this = thread::current();
        let name = this.name().unwrap_or("without a name");
        if is_dispensable(name) {
            tracing::error!(thread = name, "a thread has panicked: this is a bug in Weir");
        } else {
            end(name, "it has panicked, which is a bug in Weir");
        }
    }));
}

/// A thread has ended that Weir can't do without.
pub(crate) fn end(thread: &str, cause: &str) -> ! {
    tracing::error!(thread, cause, "an essential thread has ended: Weir exits");
    std::process::exit(STATUS)
}

fn is_dispensable(thread: &str) -> bool {
    let is_numbered =
        |prefix: &&str| thread.strip_prefix(*prefix).is_some_and(|number| number.parse::<u64>().is_ok());
    DISPENSABLE.contains(&thread) || NUMBERED.iter().any(is_numbered)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Not a test: the process of the next one.
    #[test]
    #[ignore]
    fn a_thread_panics() {
        let Ok(name) = std::env::var("WEIR_TEST_PANICS") else { return };
        watch();
        let panicking = thread::Builder::new().name(name).spawn(|| panic!("for a test")).unwrap();
        let _ = panicking.join();
        std::process::exit(3);
    }

    #[test]
    fn a_thread_that_panics_ends_the_process_unless_it_can_be_done_without() {
        let name = "supervision::tests::a_thread_panics";
        for (thread, status) in [
            ("worker-0", STATUS),
            ("topology", STATUS),
            ("probe db1:3306", STATUS),
            ("admin port", STATUS),
            ("admin 12", 3),
            ("run 7", 3),
            ("http", 3),
        ] {
            let child = Command::new(std::env::current_exe().unwrap())
                .args([name, "--exact", "--ignored", "--nocapture"])
                .env("WEIR_TEST_PANICS", thread)
                .output()
                .unwrap();
            assert_eq!(child.status.code(), Some(status), "{thread}");
            let said = String::from_utf8_lossy(&child.stderr);
            assert!(said.contains("for a test"), "{said}");
        }
    }
}
