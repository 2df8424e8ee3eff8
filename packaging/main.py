"""Makes Weir's packages: a .deb, a .rpm and a container image, the SBOM of each program, and SHA256SUMS.

Everything that they need comes from the registries of Rust and of the distribution. Two runs with the same sources, compiler
and tools give the same bytes, in whatever folder, whenever and whoever runs them.
"""

import argparse
import hashlib
import os
import shutil
from pathlib import Path

import build
import deb_package
import libraries
import oci_image
import release as releases
import rpm_package
import sbom
import tree

KINDS = ["deb", "rpm", "image"]
# The programs that make them, and Debian's packages which have those.
TOOLS = {
    "deb": {"dpkg-deb": "dpkg", "dpkg-shlibdeps": "dpkg-dev", "objcopy": "binutils"},
    "rpm": {"rpmbuild": "rpm", "objcopy": "binutils"},
    "image": {"readelf": "binutils", "objcopy": "binutils"},
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="package", description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default=",".join(KINDS), help="of deb,rpm,image (default: all)")
    parser.add_argument("--out", type=Path, help="where they are written (default: target/packages)")
    parser.add_argument("--binary", type=Path, help="package this program instead of compiling one")
    parser.add_argument("--static-binary", type=Path, help="the same for the image: a static program")
    parser.add_argument("--debug", action="store_true", help="package the program of cargo build: for tests")
    parser.add_argument("--quick", action="store_true", help="compress little: for tests")
    parsed = parser.parse_args()
    parsed.kinds = parsed.only.split(",")
    if unknown := set(parsed.kinds) - set(KINDS):
        parser.error(f"--only: {', '.join(sorted(unknown))}: not one of {', '.join(KINDS)}")
    return parsed


def check_tools(kinds: list[str]) -> None:
    missing = {
        package for kind in kinds for tool, package in TOOLS[kind].items() if shutil.which(tool) is None
    }
    if missing:
        raise SystemExit(f"package: missing: {' '.join(sorted(missing))} (Debian's names): scripts/install-deps")


def program(parsed: argparse.Namespace, static: bool, release: releases.Release) -> Path:
    """The program to package: as given, or compiled."""
    given = parsed.static_binary if static else parsed.binary
    compiled = given or build.build(static, parsed.target, parsed.debug, release)
    return build.stripped(compiled, parsed.target / "packaging" / ("static" if static else "dynamic") / "weir")


def make_system_packages(parsed: argparse.Namespace, made_for: Path, release: releases.Release) -> list[Path]:
    work = parsed.target / "packaging"
    linked = [*libraries.crates(build.platform()), libraries.rust()]
    listed = sbom.sbom(linked, made_for.read_bytes(), release)
    texts = sbom.licences(linked)
    made = [parsed.out / f"weir-{release.version}.cdx.json"]
    made[0].write_bytes(listed)
    if "deb" in parsed.kinds:
        files = tree.files("deb", made_for, work, listed, texts, release)
        made.append(deb_package.make(files, made_for, work / "deb", parsed.out, release, parsed.quick))
    if "rpm" in parsed.kinds:
        files = tree.files("rpm", made_for, work, listed, texts, release)
        made.append(rpm_package.make(files, work / "rpm", parsed.out, release, parsed.quick))
    return made


def make_image(parsed: argparse.Namespace, made_for: Path, release: releases.Release) -> list[Path]:
    platform = build.platform()
    linked = [*libraries.crates(platform), libraries.rust(), libraries.c_library()]
    listed = sbom.sbom(linked, made_for.read_bytes(), release)
    beside = parsed.out / f"weir-{release.version}-image.cdx.json"
    beside.write_bytes(listed)
    machine = platform.split("-")[0]
    texts = sbom.licences(linked)
    return [beside, oci_image.make(made_for, machine, listed, texts, parsed.out, release, parsed.quick)]


def report(made: list[Path], out: Path) -> None:
    sums = ""
    for path in sorted(made):
        data = path.read_bytes()
        sums += f"{hashlib.sha256(data).hexdigest()}  {path.name}\n"
        print(f"{len(data) / 1024 / 1024:8.1f} MiB  {path}")
    (out / "SHA256SUMS").write_text(sums)


def main() -> None:
    parsed = arguments()
    check_tools(parsed.kinds)
    os.umask(0o022)
    release = releases.current()
    parsed.target = Path(os.environ.get("CARGO_TARGET_DIR") or releases.ROOT / "target").resolve()
    parsed.out = (parsed.out or parsed.target / "packages").resolve()
    parsed.out.mkdir(parents=True, exist_ok=True)
    # The static one first: what cargo leaves as target/debug/weir is the other.
    static = program(parsed, True, release) if "image" in parsed.kinds else None
    dynamic = program(parsed, False, release) if {"deb", "rpm"} & set(parsed.kinds) else None
    # Of another version nothing is left beside these.
    for old in [*parsed.out.glob("weir[-_]*"), *parsed.out.glob("SHA256SUMS")]:
        old.unlink()
    made = make_image(parsed, static, release) if static else []
    made += make_system_packages(parsed, dynamic, release) if dynamic else []
    report(made, parsed.out)


if __name__ == "__main__":
    main()
