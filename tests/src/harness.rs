//! Runs cases side by side or alone, all in one environment.

use std::error::Error;
use std::process::exit;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::env::Env;
use crate::logs;

/// Cases that run side by side unless `--test-threads` says otherwise.
const THREADS: usize = 4;

/// What a case returns; any error fails it.
pub type CaseResult = Result<(), Box<dyn Error>>;

/// Whether a case may run beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Leaves the cluster's nodes alone and works in a schema of its own.
    Parallel,
    /// Stops, kills or pauses nodes: runs alone, after all parallel cases. Afterwards the harness brings the nodes
    /// back, so a case may leave some of them down as long as one runs.
    Serial,
}

/// One test.
#[derive(Debug)]
pub struct Case {
    /// `module::what_holds`, for the filter on the command line.
    pub name: &'static str,
    /// Whether it may run beside others.
    pub phase: Phase,
    /// The test itself.
    pub run: fn(&Env) -> CaseResult,
}

impl Case {
    /// A case that may run beside others.
    pub const fn parallel(name: &'static str, run: fn(&Env) -> CaseResult) -> Case {
        Case { name, phase: Phase::Parallel, run }
    }

    /// A case that must run alone.
    pub const fn serial(name: &'static str, run: fn(&Env) -> CaseResult) -> Case {
        Case { name, phase: Phase::Serial, run }
    }
}

/// Fails a case with a message unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return ::core::result::Result::Err(::std::format!($($message)+).into());
        }
    };
}

/// Runs the cases that the command line asks for, or lists them.
pub fn run(mut cases: Vec<Case>, env: &Arc<Env>) -> Conclusion {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(THREADS));
    // Trials are begun in the order given.
    cases.sort_by_key(|case| case.phase == Phase::Serial);
    // Parallel cases share it, a serial one has it alone.
    let floor = Arc::new(RwLock::new(()));
    let trials = cases
        .into_iter()
        .map(|case| {
            let (env, floor) = (Arc::clone(env), Arc::clone(&floor));
            Trial::test(case.name, move || run_case(&case, &env, &floor))
        })
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    while env.is_aborted() {
        // The thread that cleans up ends the program.
        thread::park();
    }
    conclusion
}

fn run_case(case: &Case, env: &Env, floor: &RwLock<()>) -> Result<(), Failed> {
    if env.is_aborted() {
        return Err(Failed::from("interrupted"));
    }
    logs::take();
    let result = match case.phase {
        Phase::Parallel => {
            let _shared = floor.read().unwrap_or_else(PoisonError::into_inner);
            (case.run)(env)
        }
        Phase::Serial => {
            let _alone = floor.write().unwrap_or_else(PoisonError::into_inner);
            let result = (case.run)(env);
            // The case's own error says more than that of the repair after it.
            result.and(env.repair_cluster())
        }
    };
    result.map_err(|error| Failed::from(format!("{error}{}", logs::ends(&logs::take()))))
}

/// Ends the servers on Ctrl-C and SIGTERM, then this program.
pub fn clean_up_when_interrupted(env: &Arc<Env>) {
    let env = Arc::downgrade(env);
    let mut signals = match Signals::new([SIGINT, SIGTERM]) {
        Ok(signals) => signals,
        Err(error) => {
            // Then the next run cleans up instead.
            eprintln!("signals can't be handled: {error}");
            return;
        }
    };
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            if let Some(env) = env.upgrade() {
                env.abort();
            }
            exit(128 + signal);
        }
    });
}
