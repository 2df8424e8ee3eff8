//! Writes completions of the command line for shells, made from its definition.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

pub(crate) const EXAMPLES: &str = "Examples:
  weir completions bash > /etc/bash_completion.d/weir
  weir completions fish > ~/.config/fish/completions/weir.fish
  source <(weir completions zsh)

The packages install those for bash, fish and zsh.
Exit status: 0 if written, 1 if standard output can't be written, 2 for wrong use.";

#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that will read them
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions of `command`.
pub(crate) fn print(args: &CompletionsArgs, mut command: clap::Command) -> ExitCode {
    // To memory first: what makes them does not expect that writing fails.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "weir", &mut text);
    match std::io::stdout().write_all(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
