//! Checks addresses to listen on.

use super::*;

#[test]
fn faults_of_listeners() {
    let key = "weir_listeners[0]";
    for (line, message) in [
        (
            "address = \"localhost:6034\"",
            "address: \"localhost:6034\" is neither an address and port such as 0.0.0.0:6033 nor the path of a socket",
        ),
        ("address = \"0.0.0.0:6033\"", "address: 0.0.0.0:6033 is already in mysql_variables.interfaces"),
        (
            "address = \"/run/w\"\nmode = \"writer\"",
            "mode: unknown word \"writer\" (one of: split, primary, replicas)",
        ),
        (
            "address = \"/run/w\"\nmode = \"replica\"",
            "mode: unknown word \"replica\", did you mean \"replicas\"?",
        ),
        (
            "address = \"/run/w\"\nhostgroup = 3",
            "hostgroup: hostgroup 3 has no server: neither mysql_servers nor an active cluster names it",
        ),
        ("address = \"/run/w\"\nport = 1", "port: unknown key"),
        ("mode = \"split\"", "address: is missing"),
    ] {
        let faults = messages(&format!("[[weir_listeners]]\n{line}\n"));
        assert_eq!(faults.len(), 1, "for {line}: {faults:?}");
        assert!(faults[0].ends_with(&format!(": {key}.{message}")), "for {line}: {faults:?}");
    }
    let long = format!("/{}", "x".repeat(107));
    let faults = messages(&format!("[[weir_listeners]]\naddress = \"{long}\""));
    assert!(faults[0].ends_with("...\": a socket's path has at most 107 bytes"), "{faults:?}");
    let twice = "[[weir_listeners]]\naddress = \"[::1]:1\"\n";
    assert_eq!(
        messages(&format!("{twice}{twice}")),
        ["weir.toml:3: weir_listeners[1].address: [::1]:1 is already there (line 1)"]
    );
    let many: String =
        (1..=64).map(|port| format!("[[weir_listeners]]\naddress = \"127.0.0.1:{port}\"\n")).collect();
    assert_eq!(
        messages(&many),
        [
            "weir.toml:127: weir_listeners[63].address: more than 64 addresses, with those of mysql_variables.interfaces"
        ]
    );
}

#[test]
fn sockets_that_weir_has_itself() {
    let text = "datadir = \"/d\"\n[mysql_variables]\ninterfaces = \"0.0.0.0:6033;/d/./weir.sock\"\n\
                [admin_variables]\nmysql_ifaces = \"0.0.0.0:6034;/d/admin.sock\"\n\
                [[weir_listeners]]\naddress = \"/d/admin.sock\"\n\
                [[weir_listeners]]\naddress = \"0.0.0.0:6034\"\n\
                [[weir_listeners]]\naddress = \"/elsewhere/weir.sock\"\n";
    let control = "is Weir's own control socket in datadir: take another name";
    assert_eq!(
        messages(text),
        [
            format!("weir.toml:3: mysql_variables.interfaces: /d/./weir.sock {control}"),
            "weir.toml:6: weir_listeners[0].address: /d/admin.sock is already in admin_variables.mysql_ifaces".to_owned(),
            "weir.toml:8: weir_listeners[1].address: 0.0.0.0:6034 is already in admin_variables.mysql_ifaces".to_owned(),
        ]
    );
    let listener = "datadir = \"/d\"\n[[weir_listeners]]\naddress = \"/d/weir.sock\"\n";
    assert_eq!(
        messages(listener),
        [format!("weir.toml:2: weir_listeners[0].address: /d/weir.sock {control}")]
    );
    let relative = "datadir = \"d\"\n[admin_variables]\nmysql_ifaces = \"/d/weir.sock\"\n";
    assert!(messages(relative).is_empty());
}

#[test]
fn listeners_of_both_tables() {
    let text = format!(
        "{SERVER}[mysql_variables]\ninterfaces = \"0.0.0.0:6033;/run/weir/weir.sock\"\n\
         [[weir_listeners]]\naddress = \"[::]:6034\"\nmode = \"split\"\nhostgroup = 0\n\
         [[weir_listeners]]\naddress = \"/run/weir/replicas.sock\"\n"
    );
    let listeners = parse(&text, "weir.toml").unwrap().listeners();
    let shown: Vec<String> = listeners
        .iter()
        .map(|listener| format!("{} {} {:?}", listener.address, listener.mode.word(), listener.hostgroup))
        .collect();
    assert_eq!(
        shown,
        [
            "0.0.0.0:6033 split None",
            "/run/weir/weir.sock split None",
            "[::]:6034 split Some(0)",
            "/run/weir/replicas.sock split None",
        ]
    );
    assert_eq!((listeners[0].address.port(), listeners[1].address.port()), (6033, 0));
}
