"""Compiles the program for packages, so that the same sources give the same bytes wherever they lie."""

import os
import re
import subprocess
from pathlib import Path

from release import ROOT, Release

# What the sources are called in the program, wherever they were compiled.
SOURCES = "/usr/src/weir"
CRATES = "/usr/src/cargo"


def told_by_rustc(*args: str) -> str:
    return subprocess.run(["rustc", *args], check=True, capture_output=True, text=True, cwd=ROOT).stdout


def platform() -> str:
    """The platform of this machine, such as x86_64-unknown-linux-gnu."""
    return re.search(r"^host: (\S+)", told_by_rustc("-vV"), re.MULTILINE)[1]


def renamed(folder: Path) -> dict[str, str]:
    """Paths of this machine, and what stands for them in the program. Of several that match the last one counts."""
    cargo = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    sysroot = told_by_rustc("--print", "sysroot").strip()
    commit = re.search(r"^commit-hash: (\S+)", told_by_rustc("-vV"), re.MULTILINE)[1]
    return {
        str(cargo): CRATES,
        # Where rust-src is installed, and in precompiled code.
        f"{sysroot}/lib/rustlib/src/rust": f"/rustc/{commit}",
        str(ROOT): SOURCES,
        str(folder): f"{SOURCES}/target",
    }


def environment(folder: Path, release: Release) -> dict[str, str]:
    names = renamed(folder)
    own = {
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(f"--remap-path-prefix={path}={name}" for path, name in names.items()),
        "CFLAGS": " ".join(f"-ffile-prefix-map={path}={name}" for path, name in names.items()),
        "CARGO_INCREMENTAL": "0",
        # Names of functions stay, for backtraces; tables of lines would be most of the package.
        "CARGO_PROFILE_RELEASE_DEBUG": "0",
        "CARGO_PROFILE_RELEASE_STRIP": "debuginfo",
        "SOURCE_DATE_EPOCH": str(release.epoch),
        "LC_ALL": "C",
        "TZ": "UTC",
    }
    kept = {name: value for name, value in os.environ.items() if name not in ("RUSTFLAGS", "CARGO_TARGET_DIR")}
    return {**kept, **own}


def build(static: bool, target: Path, debug: bool, release: Release) -> Path:
    """Compiles weir below `target`; `static`: with the C library in it, for a container that has none. `debug`: as
    `cargo build` does, of which most is there after the tests."""
    command = [os.environ.get("CARGO", "cargo"), "rustc", "--locked", "-p", "weir", "--bin", "weir"]
    folder, env = (target, None) if debug else (target / "packaging/build", environment(target, release))
    command += ["--target-dir", str(folder)] + ([] if debug else ["--release"])
    if static:
        # For the program alone: crates are the same in both, and it is the linker that makes it static.
        command += ["--", "-Ctarget-feature=+crt-static"]
    print(f"package: compiling {'the static' if static else 'the'} program", flush=True)
    if subprocess.run(command, cwd=ROOT, env=env).returncode != 0:
        raise SystemExit("package: it can't be compiled: see above")
    return folder / ("debug" if debug else "release") / "weir"


def stripped(program: Path, to: Path) -> Path:
    """A copy without tables for debuggers; it keeps the names of functions."""
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["objcopy", "--strip-debug", program, to], check=True)
    to.chmod(0o755)
    return to
