//! Gives the thread that carries a node's group messages a real-time priority.
//!
//! While nodes agree on a view nothing is written, and they wait 100 ms each time that one of them was not told of the
//! others' last messages yet. On cores that are as busy as those of tests, that thread would wait for its turn behind
//! a hundred others.

use std::process::{Command, Stdio};

use crate::run_dir::ServerUser;

/// The provider option. The server needs `CAP_SYS_NICE`, or a limit on real-time priorities that allows it.
pub(super) const OPTION: &str = "gcomm.thread_prio=rr:2;";

/// Starts the program after it as the servers' user, who is root no more, with that capability.
const STARTER: [&str; 6] = [
    "setpriv",
    "--reuid=mysql",
    "--regid=mysql",
    "--clear-groups",
    "--inh-caps=+sys_nice",
    "--ambient-caps=+sys_nice",
];

/// What comes before the server's program on its command line; none where the machine does not allow it.
pub(super) fn starter(user: ServerUser) -> Option<&'static [&'static str]> {
    let [program, arguments @ ..] = &STARTER;
    let mut command = Command::new(program);
    command.args(arguments).args(["chrt", "--rr", "2", "true"]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    (user.switched && status.is_ok_and(|status| status.success())).then_some(&STARTER)
}
