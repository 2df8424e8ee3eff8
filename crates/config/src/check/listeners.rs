//! Checks that no address is wanted twice.

use crate::model::config::Config;
use crate::model::listeners::LISTENERS_MAX;
use crate::report::error::Report;
use crate::report::place::Lines;

/// No address twice, `interfaces` included, and not too many.
pub(crate) fn distinct(config: &Config, lines: &Lines<'_>, report: &mut Report) {
    let interfaces = &config.variables.interfaces;
    for (index, row) in config.weir_listeners.iter().enumerate() {
        let before = config.weir_listeners.iter().take(index).position(|other| other.address == row.address);
        let reason = match before {
            Some(first) => format!("{} is already there ({})", row.address, lines.at(first).pointer()),
            None if interfaces.contains(&row.address) => {
                format!("{} is already in mysql_variables.interfaces", row.address)
            }
            None if interfaces.len() + index >= LISTENERS_MAX => {
                format!("more than {LISTENERS_MAX} addresses, with those of mysql_variables.interfaces")
            }
            None => continue,
        };
        report.refuse(lines.at(index), "address", reason);
    }
}
