//! Sets the scheduling policy of the calling thread.

use std::io;

/// From now on the calling thread does not push others aside when something comes for it, but waits until they stop
/// or their time slice is over (`SCHED_BATCH`, sched(7)). On an idle processor it runs at once, as before. Needs no
/// privilege.
///
/// # Errors
/// When the container's run-time forbids the call.
pub fn wait_for_a_processor() -> io::Result<()> {
    // SAFETY: all zeros is a value of this struct of integers.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel only reads from `parameters`, which lives until the call returns; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    /// Field 41 of /proc/PID/stat, the policy (proc_pid_stat(5)); fields 1 and 2 end with the last parenthesis.
    fn policy() -> String {
        let stat = fs::read_to_string("/proc/thread-self/stat").expect("/proc is mounted");
        let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
        fields.split_whitespace().nth(41 - 3).expect("41 fields").to_owned()
    }

    #[test]
    fn only_the_calling_thread_waits_for_a_processor() {
        let before = policy();
        let inside = std::thread::spawn(|| {
            super::wait_for_a_processor().expect("it needs no privilege");
            policy()
        });
        assert_eq!(inside.join().expect("no panic"), "3");
        assert_eq!(policy(), before);
    }
}
