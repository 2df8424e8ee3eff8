//! `weir-fidelity`: does anybody see through Weir what they would not see at the server?

mod args;

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use weir_fidelity::{FidelityError, Options, run};
use weir_testkit::{Mysql, RunDir};

use args::Args;

/// What a shell reports for a program that ended by Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    match play(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(FidelityError::Interrupted) => {
            eprintln!("weir-fidelity: interrupted; all servers are stopped");
            ExitCode::from(EXIT_INTERRUPTED)
        }
        Err(error) => {
            eprintln!("weir-fidelity: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether no cell is wrong. Everything started in here ends when it returns, on whatever way.
fn play(args: &Args) -> Result<bool, FidelityError> {
    let cancel = cancel_on_signals()?;
    let binary = args.weir_binary()?;
    let mysql = Mysql::start(&args.server_options(&cancel))?;
    let dir = RunDir::create("fidelity-weirs", args.keep)?;
    let options = Options {
        only: args.only.clone(),
        stages: args.stages(),
        binary,
        dir: dir.path().to_owned(),
        address: args.address,
        io: args.io.into(),
        reset_after_hidden_code: args.reset_after_hidden_code,
        progress: |line| eprintln!("{line}"),
        list: args.list.clone(),
        cancel,
    };
    let report = run(&mysql, &options)?;
    print!("{}\n{}", report.wrong(), report.summary());
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&report).map_err(std::io::Error::from);
        let doing = format!("write {}", path.display());
        json.and_then(|json| fs::write(path, json)).map_err(|source| FidelityError::Io { doing, source })?;
    }
    Ok(report.is_good())
}

/// The first Ctrl-C (or SIGTERM) asks for an orderly end, the second one ends at once: the next run then removes what
/// is left.
fn cancel_on_signals() -> Result<Arc<AtomicBool>, FidelityError> {
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(EXIT_INTERRUPTED),
            Arc::clone(&cancel),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&cancel)))
        .map_err(|source| FidelityError::Io { doing: "handle signals".to_owned(), source })?;
    }
    Ok(cancel)
}
