//! Runs `weir donor`: names the donors that a Galera node which is about to join should ask for.

use std::process::ExitCode;

use crate::control::{ControlClient, ControlClientError};

/// Prints the value for `wsrep_sst_donor`; an empty line where the joiner may as well let the group choose.
pub(crate) fn donor(client: &ControlClient, hostgroup: u32) -> Result<ExitCode, ControlClientError> {
    let status = client.status()?;
    let Some(cluster) = status.clusters.iter().find(|cluster| cluster.writer_hostgroup == hostgroup) else {
        eprintln!("weir: {hostgroup} is no cluster's writer hostgroup");
        return Ok(ExitCode::FAILURE);
    };
    println!("{}", cluster.donor_list());
    Ok(ExitCode::SUCCESS)
}
