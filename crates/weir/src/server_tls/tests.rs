//! Tests with certificates, authorities and lists made here, and handshakes without a network.

use super::*;

fn config(dir: &Path, params: &str) -> Config {
    config_of("db1", dir, params)
}

fn config_of(host: &str, dir: &Path, params: &str) -> Config {
    let text = format!(
        "[[mysql_servers]]\nhostgroup_id = 0\nhostname = \"{host}\"\nuse_ssl = 1\n\
         [[mysql_servers_ssl_params]]\nhostname = \"{host}\"\n{}",
        params.replace("DIR", &dir.display().to_string())
    );
    weir_config::parse(&text, "weir.toml").unwrap()
}

#[test]
fn the_same_object_as_long_as_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        std::fs::write(dir.path().join("ca.pem"), made.cert.pem()).unwrap();
        std::fs::write(dir.path().join("c.pem"), made.cert.pem()).unwrap();
        std::fs::write(dir.path().join("k.pem"), made.signing_key.serialize_pem()).unwrap();
    };
    write("one");
    let params = "ssl_ca = \"DIR/ca.pem\"\nssl_cert = \"DIR/c.pem\"\nssl_key = \"DIR/k.pem\"\n";
    let config = config(dir.path(), params);
    let endpoint = Endpoint::new("db1", 3306);
    let first = ServersTls::default().read(&config).unwrap();
    let again = first.read(&config).unwrap();
    assert!(Arc::ptr_eq(first.of(&endpoint).unwrap(), again.of(&endpoint).unwrap()));
    write("two");
    let changed = again.read(&config).unwrap();
    assert!(!Arc::ptr_eq(first.of(&endpoint).unwrap(), changed.of(&endpoint).unwrap()));
    assert!(changed.read(&Config::default()).unwrap().of(&endpoint).is_none());
    assert_eq!(changed.for_monitor().len(), 1);
}

#[test]
fn files_that_are_no_good_are_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("junk.pem"), "junk").unwrap();
    for (params, wanted) in [
        ("ssl_ca = \"DIR/none.pem\"", "none.pem: No such file"),
        ("ssl_ca = \"DIR/junk.pem\"", "junk.pem has no certificate that can be trusted"),
        (
            "ssl_cert = \"DIR/junk.pem\"\nssl_key = \"DIR/junk.pem\"",
            "junk.pem lacks the PEM section that is needed",
        ),
    ] {
        let error = ServersTls::default().read(&config(dir.path(), params)).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

/// An authority, a server's certificate of its making, and what it has revoked.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    /// A server with a certificate of this number.
    fn server(&self, number: u64) -> rustls::ServerConfig {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = ["somebody.example".to_owned(), "10.0.0.1".to_owned()];
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.serial_number = Some(number.into());
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap()
    }

    fn revokes(&self, numbers: &[u64], next_year: i32) -> String {
        let revoked = numbers.iter().map(|number| rcgen::RevokedCertParams {
            serial_number: (*number).into(),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(next_year, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// The cipher that both ends agree upon, or why they don't.
fn shake_hands(dir: &Path, params: &str, server: rustls::ServerConfig) -> Result<String, String> {
    shake_hands_as("db1", dir, params, server)
}

fn shake_hands_as(
    host: &str,
    dir: &Path,
    params: &str,
    server: rustls::ServerConfig,
) -> Result<String, String> {
    let config = config_of(host, dir, params);
    let tls = ServersTls::default().read(&config).map_err(|error| error.to_string())?;
    let tls = tls.of(&Endpoint::new(host, 3306)).unwrap().clone();
    let mut client = rustls::ClientConnection::new(tls.config.clone(), tls.name.clone()).unwrap();
    let mut server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut &bytes[..]).unwrap();
        server.process_new_packets().map_err(|error| error.to_string())?;
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut &bytes[..]).unwrap();
        client.process_new_packets().map_err(|error| error.to_string())?;
    }
    Ok(client
        .negotiated_cipher_suite()
        .and_then(|suite| suite.suite().as_str())
        .unwrap_or_default()
        .to_owned())
}

#[test]
fn revoked_certificates_and_authorities_of_directories() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    write("ca.pem", &first.pem);
    write("cas/a.pem", &first.pem);
    write("cas/b.pem", &second.pem);
    write("cas/readme", "nothing of use");
    write("crl.pem", &first.revokes(&[7], 2100));
    write("crls/a.pem", &first.revokes(&[7], 2100));
    write("crls/b.pem", &second.revokes(&[8], 2100));
    write("old.pem", &first.revokes(&[], 2025));
    write("empty/readme", "nothing of use");
    let ca = "ssl_ca = \"DIR/ca.pem\"\n";
    let both = "ssl_capath = \"DIR/cas\"\n";
    let crls = format!("{both}ssl_crlpath = \"DIR/crls\"\n");
    let all = format!("{crls}{ca}ssl_crl = \"DIR/crl.pem\"\n");
    let crl = format!("{ca}ssl_crl = \"DIR/crl.pem\"\n");
    for (params, authority, number, wanted) in [
        (ca, &first, 7, Ok(())),
        (ca, &second, 1, Err("UnknownIssuer")),
        (both, &first, 1, Ok(())),
        (both, &second, 1, Ok(())),
        (&crl, &first, 1, Ok(())),
        (&crl, &first, 7, Err("Revoked")),
        (&crls, &second, 7, Ok(())),
        (&crls, &second, 8, Err("Revoked")),
        (&all, &first, 7, Err("Revoked")),
        // No list tells of the second authority's certificates, or only an old one.
        (&format!("{both}ssl_crl = \"DIR/crl.pem\"\n"), &second, 1, Err("UnknownRevocationStatus")),
        (&format!("{ca}ssl_crl = \"DIR/old.pem\"\n"), &first, 1, Err("revocation list expired")),
        (&format!("{ca}ssl_crl = \"DIR/ca.pem\"\n"), &first, 1, Err("ca.pem has no list of revoked")),
        (&format!("{ca}ssl_crlpath = \"DIR/empty\"\n"), &first, 1, Err("empty has no list of revoked")),
        ("ssl_capath = \"DIR/empty\"\n", &first, 1, Err("empty has no certificate that can be trusted")),
    ] {
        let outcome = shake_hands(dir.path(), params, authority.server(number));
        let is_right = match (&outcome, wanted) {
            (Ok(_), Ok(())) => true,
            (Err(error), Err(wanted)) => {
                error.replace(' ', "").to_lowercase().contains(&wanted.replace(' ', "").to_lowercase())
            }
            _ => false,
        };
        assert!(is_right, "{params} number {number}: {outcome:?}, wanted {wanted:?}");
    }
}

#[test]
fn ciphers_are_those_that_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("one");
    for (params, wanted) in [
        ("ssl_cipher = \"TLS_CHACHA20_POLY1305_SHA256\"", "TLS13_CHACHA20_POLY1305_SHA256"),
        (
            "ssl_cipher = \"ECDHE-ECDSA-CHACHA20-POLY1305\"\ntls_version = \"TLSv1.2\"",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ),
        // Those of the other version are left alone.
        ("ssl_cipher = \"ECDHE-ECDSA-CHACHA20-POLY1305\"", "TLS13_AES_256_GCM_SHA384"),
    ] {
        let cipher = shake_hands(dir.path(), params, authority.server(1));
        assert_eq!(cipher.as_deref(), Ok(wanted), "{params}");
    }
    let rsa = "ssl_cipher = \"ECDHE-RSA-AES256-GCM-SHA384\"\ntls_version = \"TLSv1.2\"";
    assert!(shake_hands(dir.path(), rsa, authority.server(1)).is_err(), "a cipher that was not named");
}

#[test]
fn a_name_counts_where_the_identity_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    std::fs::write(dir.path().join("ca.pem"), &authority.pem).unwrap();
    let ca = "ssl_ca = \"DIR/ca.pem\"\n";
    let verified = format!("{ca}[mysql_variables]\nssl_p2s_verify_identity = true\n");
    let outcome = |host: &str, params: &str, authority: &Authority| {
        shake_hands_as(host, dir.path(), params, authority.server(1)).map(drop)
    };
    assert_eq!(outcome("db1", ca, &authority), Ok(()));
    assert_eq!(outcome("somebody.example", &verified, &authority), Ok(()));
    assert_eq!(outcome("10.0.0.1", &verified, &authority), Ok(()));
    for host in ["db1", "10.0.0.2", "www.somebody.example"] {
        let fault = outcome(host, &verified, &authority).unwrap_err();
        assert!(fault.contains("not valid for name"), "{host}: {fault}");
    }
    let fault = outcome("somebody.example", &verified, &other).unwrap_err();
    assert!(fault.contains("UnknownIssuer"), "{fault}");
}
