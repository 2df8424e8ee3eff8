//! Reads the names in a client's certificate, in the form in which REQUIRE SUBJECT and REQUIRE ISSUER have them.

use std::fmt::Write;

use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

/// Attributes of names that have a short name (OpenSSL's `objects.txt`).
const SHORT_NAMES: [(&str, &str); 17] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.46", "dnQualifier"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
];

/// A certificate that a client has shown, and that an authority of Weir's has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Whose it is: `/C=SE/O=Example/CN=app`.
    pub subject: String,
    /// Who has signed it.
    pub issuer: String,
}

impl ClientCertificate {
    /// Reads a certificate (DER); none if it is none.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(Self { subject: one_line(certificate.subject()), issuer: one_line(certificate.issuer()) })
    }
}

/// A name as servers compare it: as X509_NAME_oneline() of OpenSSL writes it.
fn one_line(name: &X509Name<'_>) -> String {
    let mut line = String::new();
    for attribute in name.iter_attributes() {
        let oid = attribute.attr_type().to_id_string();
        let short =
            SHORT_NAMES.iter().find(|(known, _)| *known == oid).map_or(oid.as_str(), |(_, short)| short);
        line.push('/');
        line.push_str(short);
        line.push('=');
        for byte in attribute.attr_value().data {
            match byte {
                b' '..=b'~' => line.push(char::from(*byte)),
                // Writing to a String can't fail.
                other => drop(write!(line, "\\x{other:02X}")),
            }
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    #[test]
    fn names_are_written_as_servers_write_them() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let mut name = DistinguishedName::new();
        name.push(DnType::CountryName, "SE");
        name.push(DnType::OrganizationName, "Beispiel & Söhne");
        name.push(DnType::CommonName, "app");
        name.push(DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), "app@example.com");
        name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 99999]), "own");
        params.distinguished_name = name;
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let read = ClientCertificate::parse(certificate.der()).unwrap();
        let expected =
            r"/C=SE/O=Beispiel & S\xC3\xB6hne/CN=app/emailAddress=app@example.com/1.3.6.1.4.1.99999=own";
        assert_eq!((read.subject.as_str(), read.issuer.as_str()), (expected, expected));
        assert_eq!(ClientCertificate::parse(&certificate.der()[1..]), None);
    }

    proptest! {
        #[test]
        fn whatever_a_client_shows_is_read_or_not(bytes in any::<Vec<u8>>()) {
            let _ = ClientCertificate::parse(&bytes);
        }
    }
}
