//! Writes the unit of systemd under which Weir runs.

use std::path::Path;

/// The unit that packages install.
const UNIT: &str = include_str!("../../../packaging/weir.service");
/// The program and its file there.
const PROGRAM: &str = "/usr/bin/weir";
const CONFIG: &str = "/etc/weir/weir.toml";

/// The line behind which another place is named that Weir may write to.
const STATE: &str = "StateDirectoryMode=0750\n";
/// Nothing of users' homes is seen.
const NO_HOMES: &str = "ProtectHome=true";
/// Where homes are (systemd.exec(5), "ProtectHome=").
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

/// The unit for this program with this configuration; `datadir`: another place for Weir's own files than the unit's.
pub fn service_unit(program: &Path, config: &Path, datadir: Option<&Path>) -> String {
    // Escapes of systemd.unit(5), "Specifiers", and of systemd.service(5), "Command lines".
    let escaped = |path: &Path| {
        let text = path.display().to_string().replace('\\', "\\\\").replace('%', "%%");
        if text.contains([' ', '"', '\'']) { format!("\"{}\"", text.replace('"', "\\\"")) } else { text }
    };
    let in_command = |path: &Path| escaped(path).replace('$', "$$");
    let mut unit = UNIT.replace(PROGRAM, &in_command(program)).replace(CONFIG, &in_command(config));
    if let Some(datadir) = datadir {
        unit = unit.replace(STATE, &format!("{STATE}ReadWritePaths={}\n", escaped(datadir)));
    }
    let is_in_home = |path: &Path| HOMES.iter().any(|home| path.starts_with(home));
    if [Some(program), Some(config), datadir].into_iter().flatten().any(is_in_home) {
        unit = unit.replace(NO_HOMES, "ProtectHome=read-only");
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_runs_this_program_with_this_file() {
        let unit = service_unit(Path::new("/opt/weir/weir"), Path::new("/srv/50% off/weir.toml"), None);
        assert!(unit.contains("ExecStart=/opt/weir/weir serve -c \"/srv/50%% off/weir.toml\" "), "{unit}");
        assert!(unit.contains("ExecReload=/opt/weir/weir check -c \"/srv/50%% off/weir.toml\"\n"), "{unit}");
        assert!(!unit.contains(PROGRAM) && !unit.contains(CONFIG), "{unit}");
        assert_eq!(service_unit(Path::new(PROGRAM), Path::new(CONFIG), None), UNIT);
    }

    #[test]
    fn the_unit_lets_weir_write_to_its_datadir() {
        let (program, config) = (Path::new(PROGRAM), Path::new(CONFIG));
        let unit = service_unit(program, config, Some(Path::new("/srv/weir data")));
        assert!(unit.contains("\nReadWritePaths=\"/srv/weir data\"\n"), "{unit}");
        assert!(unit.contains(NO_HOMES), "{unit}");
        let unit = service_unit(program, Path::new("/home/dba/weir.toml"), None);
        assert!(unit.contains("\nProtectHome=read-only\n") && !unit.contains("ReadWritePaths"), "{unit}");
    }
}
