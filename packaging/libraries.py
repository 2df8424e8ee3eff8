"""Lists what is linked into the program: crates, the C libraries in them, Rust's own library, and in a static program the
system's."""

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import tomllib

from release import ROOT


@dataclass(frozen=True)
class Library:
    name: str
    version: str
    # An SPDX expression.
    licence: str
    # As SBOMs name it; empty where there is no such name.
    purl: str = ""
    # SHA-256 of the archive of the registry; empty for what does not come from there.
    checksum: str = ""
    # The sources, with the texts of the licence.
    folder: Path | None = None
    # Such a text, if it is not in a file of its own.
    text: str = ""
    # Names and versions.
    needs: tuple[tuple[str, str], ...] = ()
    contains: tuple["Library", ...] = field(default=())

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.version


@dataclass(frozen=True)
class Bundled:
    """A C library in the sources of a crate, which is compiled with it."""

    name: str
    licence: str
    # Where its version stands: a file, and what finds its parts there.
    file: str
    version: str
    # The licence in the same file, if it is nowhere else.
    text: str = ""


BUNDLED = {
    "aws-lc-sys": Bundled(
        "aws-lc", "", "aws-lc/include/openssl/base.h", r'AWSLC_VERSION_NUMBER_STRING "([\d.]+)"'
    ),
    "libsqlite3-sys": Bundled("sqlite", "blessing", "sqlite3/sqlite3.h", r'SQLITE_VERSION +"([\d.]+)"'),
    "pcre2-sys": Bundled(
        "pcre2",
        "BSD-3-Clause",
        "upstream/include/pcre2.h",
        r"PCRE2_(?:MAJOR|MINOR) +(\d+)",
        r"\n( +Copyright .*?)\*/",
    ),
}


def run(command: list[str | Path]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"package: {' '.join(map(str, command))} fails:\n{done.stderr}")
    return done.stdout


def linked(target: str) -> set[tuple[str, str]]:
    """The crates in the program, by name and version: no build scripts and no macros, which run when it is compiled."""
    edges = "normal,no-proc-macro"
    told = run(
        ["cargo", "tree", "--locked", "-p", "weir", "-e", edges, "--target", target, "--prefix", "none", "-f", "{p}"]
    )
    found = re.findall(r"^(\S+) v(\S+)", told, re.MULTILINE)
    if not found:
        raise SystemExit(f"package: cargo tree names no crates: {told[:200]}")
    return set(found)


def checksums() -> dict[tuple[str, str], str]:
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    return {(one["name"], one["version"]): one.get("checksum", "") for one in packages}


def bundled_in(crate: dict) -> tuple[Library, ...]:
    known = BUNDLED.get(crate["name"])
    if known is None:
        return ()
    file = Path(crate["manifest_path"]).parent / known.file
    source = file.read_text()
    version = ".".join(re.findall(known.version, source))
    text = re.search(known.text, source, re.DOTALL) if known.text else None
    if not version or bool(known.text) != bool(text):
        raise SystemExit(f"package: {file} does not tell the version or the licence of {known.name}")
    licence = known.licence or expression(crate)
    purl = f"pkg:generic/{known.name}@{version}"
    return (Library(known.name, version, licence, purl, text=text[1].strip() if text else ""),)


def expression(crate: dict) -> str:
    """The licence as SPDX writes it; old crates have a slash for OR."""
    licence = crate["license"] or ""
    if not licence:
        raise SystemExit(f"package: {crate['name']} names no licence")
    return re.sub(r"\s*/\s*", " OR ", licence)


def crates(target: str) -> list[Library]:
    """The crates that are linked into the program, ordered by name and version."""
    metadata = json.loads(run(["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]))
    wanted, sums = linked(target), checksums()
    by_id = {crate["id"]: crate for crate in metadata["packages"]}
    edges = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    found = []
    for crate in by_id.values():
        key = crate["name"], crate["version"]
        if key not in wanted:
            continue
        needs = {(by_id[dep]["name"], by_id[dep]["version"]) for dep in edges.get(crate["id"], [])}
        own = sums.get(key, "")
        found.append(
            Library(
                *key,
                licence=expression(crate),
                purl=f"pkg:cargo/{key[0]}@{key[1]}" if own else "",
                checksum=own,
                folder=Path(crate["manifest_path"]).parent,
                needs=tuple(sorted(needs & wanted)),
                contains=bundled_in(crate),
            )
        )
    if missing := wanted - {library.key for library in found}:
        raise SystemExit(f"package: cargo metadata does not know {sorted(missing)}")
    return sorted(found, key=lambda library: library.key)


def rust() -> Library:
    version = re.search(r"^release: (\S+)", run(["rustc", "-vV"]), re.MULTILINE)[1]
    return Library("rust-std", version, "MIT OR Apache-2.0", f"pkg:generic/rust-std@{version}")


def c_library() -> Library:
    """What a static program has in it of the system; with the sources of Weir anybody can link it with another one."""
    version = run(["ldd", "--version"]).splitlines()[0].split()[-1]
    return Library("glibc", version, "LGPL-2.1-or-later", f"pkg:generic/glibc@{version}")
