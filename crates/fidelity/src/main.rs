//! Checks that nobody sees through Weir what they would not see at the server.

mod args;

use std::process::ExitCode;

use clap::Parser;
use weir_fidelity::{Options, run};
use weir_lab::{Error, Stop, exit_status, report as lab};
use weir_testkit::{Mysql, RunDir};

use args::Args;

fn main() -> ExitCode {
    exit_status("weir-fidelity", play(&Args::parse()))
}

/// Whether no cell is wrong. Everything started in here ends when it returns, on whatever way.
fn play(args: &Args) -> Result<bool, Error> {
    let stop = Stop::on_signals()?;
    let binary = args.servers.weir_binary()?;
    let mysql = Mysql::start(&args.server_options(&stop))?;
    let dir = RunDir::create("fidelity-weirs", args.servers.keep)?;
    let options = Options {
        only: args.only.clone(),
        stages: args.stages(),
        binary,
        dir: dir.path().to_owned(),
        address: args.address,
        io: args.io,
        reset_after_hidden_code: args.reset_after_hidden_code,
        progress: |line| eprintln!("{line}"),
        list: args.list.clone(),
        stop,
    };
    let report = run(&mysql, &options)?;
    print!("{}\n{}", report.wrong(), report.summary());
    if let Some(path) = &args.json {
        lab::write_json(path, &report)?;
    }
    Ok(report.is_good())
}
