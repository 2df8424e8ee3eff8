//! Checks the settings of TLS towards servers.

use super::*;

#[test]
fn faults_of_tls_towards_servers() {
    let key = "mysql_servers_ssl_params[0]";
    let start = format!("{SERVER}[[mysql_servers_ssl_params]]\nhostname = \"db1\"\n");
    for (line, message) in [
        ("ssl_cert = \"c.pem\"", "ssl_cert: needs ssl_key too"),
        ("ssl_key = \"k.pem\"", "ssl_key: needs ssl_cert too"),
        (
            "ssl_crl = \"crl.pem\"",
            "ssl_crl: needs ssl_ca or ssl_capath: without authorities any certificate is accepted",
        ),
        (
            "ssl_crlpath = \"crls\"",
            "ssl_crlpath: needs ssl_ca or ssl_capath: without authorities any certificate is accepted",
        ),
        (
            "ssl_cipher = \"ECDHE-RSA-AES256-GCM-SHA512\"",
            "ssl_cipher: unknown word \"ECDHE-RSA-AES256-GCM-SHA512\", did you mean \"ECDHE-RSA-AES256-GCM-SHA384\"?",
        ),
        (
            "ssl_cipher = \"TLS_AES_128_GCM_SHA256\"\ntls_version = \"TLSv1.2\"",
            "ssl_cipher: TLS_AES_128_GCM_SHA256 is of TLSv1.3, which tls_version excludes",
        ),
        (
            "username = \"app\"",
            "username: not built yet (only an empty string): connections go from one user to another",
        ),
        (
            "tls_version = \"TLSv1.1\"",
            "tls_version: TLSv1.1 is insecure and not supported (TLSv1.2, TLSv1.3)",
        ),
        ("tls_version = \"TLSv1.4\"", "tls_version: unknown word \"TLSv1.4\", did you mean \"TLSv1.2\"?"),
        ("ssl_certs = \"c\"", "ssl_certs: unknown key, did you mean \"ssl_cert\"?"),
    ] {
        assert_fault(&start, line, &format!("{key}.{message}"));
    }
    assert_eq!(
        messages(&format!("{start}port = 3307\n")),
        ["weir.toml:4: mysql_servers_ssl_params[0]: no row of mysql_servers is db1:3307"]
    );
    assert_eq!(
        messages(&format!("{start}[[mysql_servers_ssl_params]]\nhostname = \"db1\"\n")),
        ["weir.toml:6: mysql_servers_ssl_params[1]: db1:3306 is already there (line 4)"]
    );
    let both = SERVER.replace("= 0", "= 1");
    assert_eq!(
        messages(&format!("{SERVER}{both}use_ssl = 1\n")),
        [
            "weir.toml:4: mysql_servers[1].use_ssl: differs from the row of db1:3306 in line 1: all rows of a server must agree"
        ]
    );
}

#[test]
fn tls_towards_servers() {
    let text = format!(
        "{SERVER}use_ssl = 1\n{}use_ssl = true\n{}\
         [[mysql_servers_ssl_params]]\nhostname = \"db1\"\nssl_ca = \"ca.pem\"\ntls_version = \"TLSv1.3\"\n\
         ssl_capath = \"cas\"\nssl_crl = \"crl.pem\"\nssl_crlpath = \"crls\"\nssl_cipher = \"TLS_AES_128_GCM_SHA256\"\n\
         [mysql_variables]\nssl_p2s_cipher = \"ECDHE-RSA-AES128-GCM-SHA256:TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\"\nssl_p2s_cert = \"c.pem\"\nssl_p2s_key = \"k.pem\"\n",
        SERVER.replace("db1", "db2"),
        SERVER.replace("db1", "db3")
    );
    let config = parse(&text, "weir.toml").unwrap();
    let of = |host: &str| config.server_tls(&weir_topology::Endpoint::new(host, 3306));
    let first = of("db1").unwrap();
    assert_eq!((first.ca.as_deref(), &first.own), (Some(Path::new("ca.pem")), &None));
    assert_eq!(first.versions, TlsVersions { v12: false, v13: true });
    assert_eq!(first.ca_dir.as_deref(), Some(Path::new("cas")));
    assert_eq!(
        (first.crl.as_deref(), first.crl_dir.as_deref()),
        (Some(Path::new("crl.pem")), Some(Path::new("crls")))
    );
    assert_eq!(
        first.ciphers.iter().map(|cipher| cipher.iana).collect::<Vec<_>>(),
        ["TLS_AES_128_GCM_SHA256"]
    );
    let second = of("db2").unwrap();
    assert_eq!((second.ca, second.versions), (None, TlsVersions::default()));
    let suites = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"];
    assert_eq!(second.ciphers.iter().map(|cipher| cipher.iana).collect::<Vec<_>>(), suites);
    assert_eq!(second.own.unwrap().key, Path::new("k.pem"));
    assert_eq!(of("db3"), None);
}

#[test]
fn an_identity_is_verified_by_authorities_only() {
    let verified = format!("{SERVER}use_ssl = 1\n[mysql_variables]\nssl_p2s_verify_identity = true\n");
    assert_eq!(
        messages(&verified),
        [format!("weir.toml:1: mysql_servers[0].use_ssl: {}", crate::NEEDS_AUTHORITY)]
    );
    assert_eq!(messages(&verified.replace("use_ssl = 1", "use_ssl = 0")), [""; 0]);
    let own = "[[mysql_servers_ssl_params]]\nhostname = \"db1\"\nssl_capath = \"cas\"\n";
    for more in ["ssl_p2s_ca = \"ca.pem\"\n", own] {
        let config = crate::parse(&format!("{verified}{more}"), "weir.toml").unwrap();
        let params = config.server_tls(&weir_topology::Endpoint::new("db1", 3306)).unwrap();
        assert!(params.verifies_identity && params.has_authority(), "{more}");
    }
}
