"""Checks what is made: that two runs give the same bytes, and that the SBOM says what is in the program."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import tomllib

from results import Failed, ensure, not_run

ROOT = Path(__file__).resolve().parent.parent.parent
# In the C libraries: SQLite is in the public domain; the image's C library can be replaced by whoever compiles Weir.
LICENCES_OF_C = {"blessing", "LGPL-2.1-or-later"}
# Another place, another time, another user's habits.
ELSEWHERE = {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "HOME": "/var/tmp", "USER": "somebody"}


def packages(out: Path, arguments: list[str], umask: int = 0o022, **environment: str) -> None:
    done = subprocess.run(
        [ROOT / "scripts/package", "--out", out, *arguments],
        env={**os.environ, **environment},
        umask=umask,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Failed(f"scripts/package: {done.stdout[-1000:]}{done.stderr[-3000:]}")
    print(done.stdout, end="", flush=True)


class BuildChecks:
    """The packages in a folder, and the arguments that they were made with."""

    def __init__(self, made: Path, arguments: list[str], work: Path) -> None:
        self.made = made
        self.arguments = arguments
        self.work = work

    def checks(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("the sums are those of the files", self.check_sums),
            ("two runs give the same bytes", self.check_reproducible),
            *((f"lintian finds nothing in {path.name}", partial(check_lintian, path)) for path in self.debs()),
            *((f"the SBOM {path.name} is complete", partial(self.check_sbom, path)) for path in self.sboms()),
        ]

    def debs(self) -> list[Path]:
        return sorted(self.made.glob("*.deb"))

    def sboms(self) -> list[Path]:
        return sorted(self.made.glob("*.cdx.json"))

    def check_sums(self) -> None:
        lines = (self.made / "SHA256SUMS").read_text().splitlines()
        files = {path.name for path in self.made.iterdir()} - {"SHA256SUMS"}
        ensure({line.split("  ")[1] for line in lines} == files, f"{lines}: {files}")
        for line in lines:
            wanted, name = line.split("  ")
            found = hashlib.sha256((self.made / name).read_bytes()).hexdigest()
            ensure(found == wanted, f"{name}: {found}")

    def check_reproducible(self) -> None:
        other = self.work / "again"
        packages(
            other, self.arguments, umask=0o077, CARGO_TARGET_DIR=str(self.work / "other-target"), **self.elsewhere()
        )
        first, second = ((folder / "SHA256SUMS").read_text() for folder in (self.made, other))
        ensure(first == second, f"\n{first}---\n{second}")
        shutil.rmtree(other)

    def elsewhere(self) -> dict[str, str]:
        # Another home, but the same toolchain and registry.
        home = Path.home()
        tools = {"CARGO_HOME": home / ".cargo", "RUSTUP_HOME": home / ".rustup"}
        return {**ELSEWHERE, **{name: os.environ.get(name, str(path)) for name, path in tools.items()}}

    def check_sbom(self, path: Path) -> None:
        told = json.loads(path.read_text())
        ensure((told["bomFormat"], told["specVersion"], told["version"]) == ("CycloneDX", "1.5", 1), f"{path}")
        ensure(re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", told["serialNumber"]), "serial")
        components = told["components"] + [inner for one in told["components"] for inner in one.get("components", [])]
        for one in components:
            ensure(one["type"] == "library" and one["name"] and one["version"], f"{one}")
            ensure(all(re.fullmatch("[0-9a-f]{64}", each["content"]) for each in one.get("hashes", [])), f"{one}")
            check_licence(one)
        refs = [one["bom-ref"] for one in components] + [told["metadata"]["component"]["bom-ref"]]
        ensure(len(refs) == len(set(refs)), "a bom-ref is there twice")
        for edge in told["dependencies"]:
            ensure({edge["ref"], *edge["dependsOn"]} <= set(refs), f"{edge}")
        names = {one["name"] for one in components}
        for wanted in ("rustls", "aws-lc", "sqlite", "pcre2", "rust-std", "weir-proxy"):
            ensure(wanted in names, f"{wanted} is missing")
        for unwanted in ("syn", "cc", "proptest"):
            ensure(unwanted not in names, f"{unwanted} is not in the program")
        ensure(("glibc" in names) == ("image" in path.name), "glibc is in a static program only")
        check_against_lock(components)


def check_lintian(package: Path) -> None:
    if shutil.which("lintian") is None:
        not_run("Debian's own check of the .deb", "lintian is not installed")
        return
    # As root it says on standard error that it should not be.
    told = subprocess.run(["lintian", package], capture_output=True, text=True)
    ensure(told.returncode == 0 and not told.stdout, told.stdout)


def check_licence(component: dict) -> None:
    [licence] = component["licenses"]
    allowed = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
    # Of an alternative one has to be allowed; deny.toml is checked exactly by `make lint`.
    atoms = re.split(r" (?:AND|OR) |[()]", licence["expression"])
    known = [atom for atom in atoms if atom.strip() in allowed | LICENCES_OF_C]
    ensure(known, f"{component['name']}: {licence}")


def check_against_lock(components: list[dict]) -> None:
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(one["name"], one["version"]): one.get("checksum") for one in lock}
    crates = [one for one in components if one.get("purl", "").startswith("pkg:cargo/")]
    ensure(len(crates) > 100, f"only {len(crates)} crates")
    for one in crates:
        wanted = sums[one["name"], one["version"]]
        ensure(one["hashes"] == [{"alg": "SHA-256", "content": wanted}], f"{one}: {wanted}")


def check_same_program(made: Path, arguments: list[str], work: Path) -> None:
    """Compiles the sources a second time, in another folder, and compares the packages."""
    copy = work / "a" / "copy"
    copy.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", copy], check=True, input=archive.stdout)
    # Of an archive git knows nothing: the same version is told from outside.
    git = subprocess.run(["git", "-C", ROOT, "rev-parse", "--git-dir"], check=True, capture_output=True, text=True)
    subprocess.run(
        [copy / "scripts/package", "--out", work / "compiled", *arguments],
        check=True,
        stdout=sys.stdout,
        env={
            **os.environ,
            "CARGO_TARGET_DIR": str(work / "compiled-target"),
            "GIT_DIR": str(ROOT / git.stdout.strip()),
            "GIT_OPTIONAL_LOCKS": "0",
        },
    )
    first, second = ((folder / "SHA256SUMS").read_text() for folder in (made, work / "compiled"))
    ensure(first == second, f"\n{first}---\n{second}")
