//! Writes a proposal as `weir.toml`, short and with comments.

use std::fmt::Write as _;
use std::path::Path;

use toml_edit::Value;

use crate::cluster::Kind;
use crate::proposal::{AdminCredentials, Proposal, Purpose, Row, hostgroup};

/// What the file says beside the proposal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places<'p> {
    /// `datadir`; none: the default.
    pub datadir: Option<&'p Path>,
    /// `interfaces`; none: the default.
    pub listen: Option<&'p str>,
    /// `admin_variables.mysql_ifaces`; none: the default.
    pub admin_listen: Option<&'p str>,
}

/// The text of the file: one key for each table, whose rows are inline.
pub fn config_text(proposal: &Proposal, places: Places<'_>) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = writeln!(
        text,
        "# {}, as `weir init` found it. After a change: weir check -c FILE",
        one_line(&proposal.title)
    );
    if let Some(datadir) = places.datadir {
        let _ = writeln!(text, "datadir = {}", string(&datadir.display().to_string()));
    }
    text.push_str(&admin(proposal, places.admin_listen));
    let _ = writeln!(text, "mysql_variables = {}", variables(proposal, places.listen));
    text.push_str(&cluster(proposal));
    text.push_str(&topology(proposal));
    if proposal.follows_accounts {
        let _ = writeln!(
            text,
            "# The servers' own accounts log in at Weir, with their passwords there.\n\
             weir_hostgroups = [{{ hostgroup_id = {}, follow_accounts = 1 }}]",
            hostgroup::WRITER
        );
    }
    text.push_str("mysql_servers = [\n");
    for row in &proposal.servers {
        let _ = writeln!(text, "    {}", server(row, proposal.use_ssl));
    }
    text.push_str("]\n");
    text.push_str(&users(proposal));
    text
}

fn admin(proposal: &Proposal, listen: Option<&str>) -> String {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    pairs.extend(listen.map(|listen| ("mysql_ifaces", string(listen))));
    let AdminCredentials { admin, stats } = &proposal.admin;
    for (name, credentials) in [("admin_credentials", admin), ("stats_credentials", stats)] {
        pairs.extend(credentials.as_ref().map(|credentials| (name, string(credentials.expose()))));
    }
    if pairs.is_empty() { String::new() } else { format!("admin_variables = {}\n", inline(&pairs)) }
}

fn variables(proposal: &Proposal, listen: Option<&str>) -> String {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    pairs.extend(listen.map(|listen| ("interfaces", string(listen))));
    pairs.push(("monitor_username", string(&proposal.monitor.name)));
    pairs.push(("monitor_password", string(proposal.monitor.password.expose())));
    if let Some(ca) = &proposal.ssl_ca {
        pairs.push(("ssl_p2s_ca", string(&ca.display().to_string())));
    }
    if proposal.verifies_identity {
        pairs.push(("ssl_p2s_verify_identity", "true".to_owned()));
    }
    inline(&pairs)
}

/// The table of its kind of cluster; a single server has none.
fn cluster(proposal: &Proposal) -> String {
    use hostgroup::{BACKUP_WRITER, OFFLINE, READER, WRITER};
    let table = match proposal.kind {
        Kind::Galera { .. } => "mysql_galera_hostgroups",
        Kind::Group { .. } => "mysql_group_replication_hostgroups",
        Kind::Replication => "mysql_replication_hostgroups",
        Kind::Single => return String::new(),
    };
    let number = |name, number: u32| (name, number.to_string());
    let mut pairs = vec![number("writer_hostgroup", WRITER)];
    if proposal.kind != Kind::Replication {
        pairs.push(number("backup_writer_hostgroup", BACKUP_WRITER));
    }
    pairs.push(number("reader_hostgroup", READER));
    if proposal.kind != Kind::Replication {
        pairs.push(number("offline_hostgroup", OFFLINE));
    }
    format!("{table} = [{}]\n", inline(&pairs))
}

fn topology(proposal: &Proposal) -> String {
    let mut pairs = vec![("writer_hostgroup", hostgroup::WRITER.to_string())];
    if let Some(segment) = proposal.prefer_segment {
        pairs.push(("prefer_segment", segment.to_string()));
    }
    if proposal.is_assist_off {
        pairs.push(("assist", string("off")));
    }
    for (purpose, user, password) in [
        (Purpose::Assist, "assist_username", "assist_password"),
        (Purpose::Switchover, "switchover_username", "switchover_password"),
        (Purpose::Replication, "replication_username", "replication_password"),
    ] {
        if let Some(account) = proposal.account(purpose) {
            pairs.push((user, string(&account.user)));
            pairs.push((password, string(account.password.expose())));
        }
    }
    // Replicas that are new are known to servers only that show them to the monitor's account.
    if matches!(proposal.kind, Kind::Galera { .. } | Kind::Group { .. }) {
        pairs.push(("auto_discover", string("tell")));
    }
    if pairs.len() == 1 || proposal.kind == Kind::Single {
        return String::new();
    }
    format!("weir_topology = [{}]\n", inline(&pairs))
}

fn server(row: &Row, use_ssl: bool) -> String {
    let mut pairs =
        vec![("hostgroup_id", hostgroup::WRITER.to_string()), ("hostname", string(&row.endpoint.host))];
    if row.endpoint.port != 3306 {
        pairs.push(("port", row.endpoint.port.to_string()));
    }
    if row.weight != 1 {
        pairs.push(("weight", row.weight.to_string()));
    }
    if row.max_replication_lag_s != 0 {
        pairs.push(("max_replication_lag", row.max_replication_lag_s.to_string()));
    }
    if use_ssl {
        pairs.push(("use_ssl", "true".to_owned()));
    }
    let remark = if row.is_left_out { "# " } else { "" };
    let comment = one_line(&row.comment);
    let comment = if comment.is_empty() { comment } else { format!(" # {comment}") };
    format!("{remark}{},{comment}", inline(&pairs))
}

fn users(proposal: &Proposal) -> String {
    let mut text = String::new();
    let row = |name: &str, password: &str| {
        inline(&[
            ("username", string(name)),
            ("password", string(password)),
            ("default_hostgroup", hostgroup::WRITER.to_string()),
        ])
    };
    if !proposal.users.is_empty() {
        text.push_str("# Applications log in with these at Weir, and Weir at the servers, where they have the same passwords.\n");
        text.push_str("mysql_users = [\n");
        for user in &proposal.users {
            let _ = writeln!(text, "    {},", row(&user.name, user.password.expose()));
        }
        text.push_str("]\n");
    } else if !proposal.follows_accounts {
        text.push_str("# Each application's account, as on the servers:\n");
        let _ = writeln!(text, "# mysql_users = [{}]", row("app", "its password"));
    }
    text
}

fn inline(pairs: &[(&str, String)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    format!("{{ {} }}", pairs.join(", "))
}

fn string(text: &str) -> String {
    Value::from(text).to_string().trim().to_owned()
}

/// Without anything that would end a comment: names come from servers.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}
