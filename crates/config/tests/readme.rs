//! Checks the configuration that the README shows.

use std::path::Path;

#[test]
fn the_configuration_in_the_readme_is_good() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(path).expect("the README");
    let (_, behind) = readme.split_once("```toml\n").expect("a configuration");
    let (text, _) = behind.split_once("```").expect("its end");
    assert_eq!(text.lines().count(), 10, "{text}");
    let config = weir_config::parse(text, "README.md").unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!((config.servers.len(), config.users.len(), config.galera_hostgroups.len()), (3, 1, 1));
}
