//! Writes Weir's own log to standard error, as text or as JSON.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; with colours on a terminal
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Starts logging.
///
/// # Errors
/// When the filter makes no sense.
pub(crate) fn start(format: Format, level: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| format!("--log-level {level}: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A line that finds no room on a full disk is lost. To tell of that on standard error again would be a panic.
    let builder = builder.log_internal_errors(false);
    match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        Format::Json => builder.json().init(),
    }
    Ok(())
}
