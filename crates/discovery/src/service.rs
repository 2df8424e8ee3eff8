//! Writes the unit of systemd under which Weir runs.

use std::path::Path;

/// The unit that packages install.
const UNIT: &str = include_str!("../../../packaging/weir.service");
/// The program and its file there.
const PROGRAM: &str = "/usr/bin/weir";
const CONFIG: &str = "/etc/weir/weir.toml";

/// The unit for this program with this configuration.
pub fn service_unit(program: &Path, config: &Path) -> String {
    // Escapes of systemd.unit(5), "Specifiers", and of systemd.service(5), "Command lines".
    let escaped = |path: &Path| {
        let text = path.display().to_string().replace('\\', "\\\\").replace('%', "%%").replace('$', "$$");
        if text.contains([' ', '"', '\'']) { format!("\"{}\"", text.replace('"', "\\\"")) } else { text }
    };
    UNIT.replace(PROGRAM, &escaped(program)).replace(CONFIG, &escaped(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_runs_this_program_with_this_file() {
        let unit = service_unit(Path::new("/opt/weir/weir"), Path::new("/srv/50% off/weir.toml"));
        assert!(unit.contains("ExecStart=/opt/weir/weir serve -c \"/srv/50%% off/weir.toml\" "), "{unit}");
        assert!(unit.contains("ExecReload=/opt/weir/weir check -c \"/srv/50%% off/weir.toml\"\n"), "{unit}");
        assert!(!unit.contains(PROGRAM) && !unit.contains(CONFIG), "{unit}");
        assert_eq!(service_unit(Path::new(PROGRAM), Path::new(CONFIG)), UNIT);
    }
}
