//! Checks proposals, and that what is written of them is a valid configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::cluster::tests::{node, server};
use crate::findings::tests::findings;
use crate::{Places, config_text};

fn wishes() -> Wishes {
    Wishes {
        monitor: Trust::Make,
        prefix: "weir_".to_owned(),
        assist: true,
        switchover: true,
        several_weirs: true,
        account_hosts: Vec::new(),
        known_passwords: BTreeMap::new(),
        users: vec![AppUser { name: "app".to_owned(), password: Secret::new("it's \"x\" \\") }],
        follows_accounts: false,
        admin: AdminWish::default(),
        ssl_mode: SslMode::Preferred,
        ssl_ca: None,
    }
}

fn propose(findings: &Findings, wishes: &Wishes) -> Proposal {
    let cluster = Cluster::of(findings).unwrap();
    let mut number = 0;
    let mut secret = || {
        number += 1;
        Secret::new(format!("secret{number}"))
    };
    Proposal::new(findings, &cluster, wishes, &mut secret).unwrap()
}

/// What `weir serve` makes of it.
fn read(proposal: &Proposal) -> weir_config::Config {
    let text = config_text(proposal, Places::default());
    weir_config::parse(&text, "weir.toml").unwrap_or_else(|faults| panic!("{faults:?}\n{text}"))
}

fn three_nodes() -> Findings {
    const MEMBERS: &str = "10.0.0.1:3306,10.0.0.2:3306,10.0.0.3:3307";
    let nodes = [(0, "10.0.0.1:3306"), (1, "10.0.0.2:3306"), (2, "10.0.0.3:3307")];
    findings("10.0.0.2:3306", nodes.map(|(index, name)| (name, node(index, MEMBERS, |_| {}))).to_vec())
}

fn statements(proposal: &Proposal) -> Vec<String> {
    let made = proposal.accounts.iter().flat_map(|plan| plan.statements(&BTreeSet::new()));
    made.map(|statement| statement.shown).collect()
}

#[test]
fn the_admin_port_gets_passwords_that_nobody_knows() {
    let with_port = |known| Wishes { admin: AdminWish { has_port: true, known }, ..wishes() };
    let proposal = propose(&three_nodes(), &with_port(AdminCredentials::default()));
    let made = proposal.admin.clone();
    let texts = [&made.admin, &made.stats].map(|made| made.as_ref().unwrap().expose());
    let admin = read(&proposal).admin;
    for (accounts, text, name) in
        [(&admin.admin_credentials, texts[0], "admin"), (&admin.stats_credentials, texts[1], "stats")]
    {
        let [account] = &accounts[..] else { panic!("{accounts:?}") };
        assert_eq!((account.username.as_str(), account.is_default()), (name, false));
        assert_eq!(text, format!("{name}:{}", account.password.expose()));
        assert!(!config_text(&proposal.masked(), Places::default()).contains(account.password.expose()));
    }
    assert_eq!(propose(&three_nodes(), &wishes()).admin, AdminCredentials::default());
    // Whoever was there stays, and only what everybody knows is made.
    let known = AdminCredentials { admin: Some(Secret::new("ops:x;radmin:y")), stats: None };
    let kept = propose(&three_nodes(), &with_port(known.clone()));
    assert_eq!(kept.admin.admin, known.admin);
    assert!(kept.admin.stats.is_some());
    let shown = config_text(&kept.masked(), Places::default());
    assert!(shown.contains("\"ops:...;radmin:...\""), "{shown}");
}

#[test]
fn a_prefix_that_mysql_would_refuse_is_refused_first() {
    let cluster = Cluster::of(&three_nodes()).unwrap();
    let of = |prefix: &str| {
        let wishes = Wishes { prefix: prefix.to_owned(), ..wishes() };
        Proposal::new(&three_nodes(), &cluster, &wishes, &mut || Secret::new("x")).map(drop)
    };
    assert_eq!(of(&"x".repeat(21)), Ok(()));
    let error = of(&"x".repeat(22)).unwrap_err().to_string();
    assert!(error.contains("longer than 21 characters"), "{error}");
}

#[test]
fn a_galera_cluster_gets_ten_lines() {
    let proposal = propose(&three_nodes(), &wishes());
    let config = read(&proposal);
    assert_eq!((config.servers.len(), config.users.len(), config.galera_hostgroups.len()), (3, 1, 1));
    let weights: Vec<u32> = config.servers.iter().map(|row| row.weight).collect();
    assert_eq!(weights, [1, 2, 1], "the one that the user has named is preferred");
    assert_eq!(config.servers[2].port, 3307);
    let topology = config.topology_of(hostgroup::WRITER);
    assert_eq!(
        topology.assist_account.as_ref().map(|account| account.username.as_str()),
        Some("weir_assist")
    );
    assert!(topology.switchover_account.is_none());
    let text = config_text(&proposal, Places::default());
    assert!(text.lines().count() <= 14, "{text}");
    assert_eq!(proposal.lacks_options.len(), 3);
    assert_eq!(
        statements(&proposal),
        [
            "CREATE USER 'weir_monitor'@'10.0.0.50' IDENTIFIED BY '...' PASSWORD EXPIRE NEVER",
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.* TO 'weir_monitor'@'10.0.0.50'",
            "CREATE USER 'weir_assist'@'10.0.0.50' IDENTIFIED BY '...' PASSWORD EXPIRE NEVER",
            "GRANT SUPER ON *.* TO 'weir_assist'@'10.0.0.50'",
        ]
    );
}

#[test]
fn what_is_not_wished_is_not_made() {
    let wishes =
        Wishes { assist: false, several_weirs: false, account_hosts: vec!["10.%".to_owned()], ..wishes() };
    let proposal = propose(&three_nodes(), &wishes);
    assert_eq!(
        statements(&proposal),
        ["CREATE USER 'weir_monitor'@'10.%' IDENTIFIED BY '...' PASSWORD EXPIRE NEVER"]
    );
    assert_eq!(read(&proposal).topology_of(hostgroup::WRITER).assist, weir_config::Assist::Off);
    assert_eq!(proposal.lacks_options, []);
    let monitor = Trust::Use { user: "m".to_owned(), password: Secret::new("p"), is_trial: true };
    let proposal = propose(&three_nodes(), &Wishes { monitor, ..wishes });
    assert_eq!(statements(&proposal), [""; 0]);
    assert_eq!(read(&proposal).variables.monitor_username, "m");
}

#[test]
fn a_source_and_a_replica() {
    let two = vec![
        ("10.0.0.1:3306", server("1", false, None)),
        ("10.0.0.2:3306", server("2", true, Some("10.0.0.1"))),
    ];
    let proposal = propose(&findings("10.0.0.2:3306", two), &wishes());
    let config = read(&proposal);
    assert_eq!((config.replication_hostgroups.len(), config.servers.len()), (1, 2));
    assert!(config.servers.iter().all(|row| row.max_replication_lag == 30 && row.weight == 1));
    let topology = config.topology_of(hostgroup::WRITER);
    assert!(topology.switchover_account.is_some() && topology.assist_account.is_none());
    assert_eq!(
        topology.replication_account.map(|account| account.username).as_deref(),
        Some("weir_replication")
    );
    let made = statements(&proposal);
    assert!(
        made.contains(&"GRANT REPLICATION CLIENT ON *.* TO 'weir_monitor'@'10.0.0.50'".to_owned()),
        "{made:?}"
    );
    assert!(
        made.contains(&"GRANT REPLICATION SLAVE ON *.* TO 'weir_replication'@'%'".to_owned()),
        "{made:?}"
    );
}

#[test]
fn a_single_server_has_no_cluster() {
    let proposal =
        propose(&findings("10.0.0.1:3306", vec![("10.0.0.1:3306", server("1", false, None))]), &wishes());
    let config = read(&proposal);
    assert_eq!((config.clusters().count(), config.servers.len()), (0, 1));
    assert_eq!(
        statements(&proposal),
        ["CREATE USER 'weir_monitor'@'10.0.0.50' IDENTIFIED BY '...' PASSWORD EXPIRE NEVER"]
    );
}

#[test]
fn servers_that_were_not_reached_are_comments() {
    let members = "10.0.0.1:3306,10.0.0.2:3306,10.0.0.3:3306";
    let two = vec![("10.0.0.1:3306", node(0, members, |_| {})), ("10.0.0.2:3306", node(1, members, |_| {}))];
    let proposal = propose(&findings("10.0.0.1:3306", two), &wishes());
    assert_eq!(read(&proposal).servers.len(), 2);
    let text = config_text(&proposal, Places::default());
    let comment = "    # { hostgroup_id = 100, hostname = \"10.0.0.3\" }, # a member of the cluster, not reached: no route\n";
    assert!(text.contains(comment), "{text}");
    assert!(proposal.accounts.iter().all(|plan| plan.purpose != Purpose::Assist), "two nodes evict nobody");
}

#[test]
fn far_servers_weigh_less_and_are_no_preferred_writers() {
    let mut found = three_nodes();
    found.servers[1].rtt = Duration::from_millis(20);
    let weights: Vec<u32> = propose(&found, &wishes()).servers.iter().map(|row| row.weight).collect();
    assert_eq!(weights, [11, 1, 10]);
    found.servers[1].rtt = Duration::from_micros(900);
    let weights: Vec<u32> = propose(&found, &wishes()).servers.iter().map(|row| row.weight).collect();
    assert_eq!(weights, [1, 2, 1], "that is no distance");
}

#[test]
fn servers_that_insist_on_tls_get_it() {
    let mut found = three_nodes();
    assert!(read(&propose(&found, &wishes())).servers.iter().all(|row| !row.use_ssl));
    found.servers[0].facts.settings.requires_tls = true;
    assert!(read(&propose(&found, &wishes())).servers.iter().all(|row| row.use_ssl));
}

#[test]
fn nothing_shown_has_a_password() {
    let proposal = propose(&three_nodes(), &wishes());
    let text = config_text(&proposal.masked(), Places::default());
    assert!(!text.contains("secret") && !text.contains("it's"), "{text}");
    assert!(statements(&proposal).iter().all(|shown| !shown.contains("secret")));
    let account = proposal.account(Purpose::Monitor).unwrap();
    assert!(account.statements(&BTreeSet::new())[0].sql.expose().contains("IDENTIFIED BY 'secret1'"));
}

#[test]
fn accounts_that_are_there_are_not_made_again() {
    let known_passwords = BTreeMap::from([("weir_monitor".to_owned(), Secret::new("old"))]);
    let proposal = propose(&three_nodes(), &Wishes { known_passwords, ..wishes() });
    assert_eq!(read(&proposal).variables.monitor_password.expose(), "old");
    let existing = BTreeSet::from([("weir_monitor".to_owned(), "10.0.0.50".to_owned())]);
    let made: Vec<_> = proposal.accounts.iter().flat_map(|plan| plan.statements(&existing)).collect();
    assert!(made.iter().all(|statement| !statement.shown.starts_with("CREATE USER 'weir_monitor'")));
}

#[test]
fn where_accounts_are_followed_the_monitor_may_read_them() {
    let proposal = propose(&three_nodes(), &Wishes { follows_accounts: true, users: Vec::new(), ..wishes() });
    let made = statements(&proposal);
    assert!(
        made.contains(&"GRANT SELECT ON mysql.global_priv TO 'weir_monitor'@'10.0.0.50'".to_owned()),
        "{made:?}"
    );
    let text = config_text(&proposal, Places::default());
    let row = "weir_hostgroups = [{ hostgroup_id = 100, follow_accounts = 1 }]\n";
    assert!(text.contains(row) && !text.contains("mysql_users"), "{text}");
}

#[test]
fn names_and_hosts_need_no_quotes() {
    let found = three_nodes();
    let cluster = Cluster::of(&found).unwrap();
    for wishes in [
        Wishes { prefix: "a'".to_owned(), ..wishes() },
        Wishes { account_hosts: vec!["10.0.0.5' OR".to_owned()], ..wishes() },
    ] {
        let refused = Proposal::new(&found, &cluster, &wishes, &mut || Secret::new("x"));
        assert!(matches!(refused, Err(ProposalError::Characters { .. })), "{refused:?}");
    }
}

#[test]
fn no_server_chooses_for_which_hosts_accounts_are() {
    for host in ["%", "10.0.0._", "10.0.0.0/8"] {
        let mut found = three_nodes();
        found.servers[2].facts.account.host_here = host.to_owned();
        let cluster = Cluster::of(&found).unwrap();
        let refused = Proposal::new(&found, &cluster, &wishes(), &mut || Secret::new("x"));
        assert_eq!(refused, Err(ProposalError::HostHere(host.to_owned())));
        let wishes = Wishes { account_hosts: vec!["10.%".to_owned()], ..wishes() };
        assert!(Proposal::new(&found, &cluster, &wishes, &mut || Secret::new("x")).is_ok());
    }
}
