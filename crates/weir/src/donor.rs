//! Runs `weir donor`: names the donors that a Galera node which is about to join should ask for.

use std::process::ExitCode;

use serde_json::json;

use crate::control::{ControlClient, ControlClientError};

/// Prints the value for `wsrep_sst_donor`; an empty line where the joiner may as well let the group choose.
pub(crate) fn donor(
    client: &ControlClient,
    hostgroup: u32,
    is_json: bool,
) -> Result<ExitCode, ControlClientError> {
    let status = client.status()?;
    let Some(cluster) = status.clusters.iter().find(|cluster| cluster.writer_hostgroup == hostgroup) else {
        eprintln!("weir: {hostgroup} is no cluster's writer hostgroup");
        return Ok(ExitCode::FAILURE);
    };
    if is_json {
        let list = cluster.donor_list();
        let shown = json!({ "hostgroup": hostgroup, "donors": cluster.donors, "wsrep_sst_donor": list });
        println!("{shown}");
    } else {
        println!("{}", cluster.donor_list());
    }
    Ok(ExitCode::SUCCESS)
}
