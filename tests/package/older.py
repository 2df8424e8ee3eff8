"""Makes the package of an older version, to be upgraded: the same program, with another configuration of its own."""

from dataclasses import replace
from pathlib import Path

import deb_package
import rpm_package
import tree
from release import Release

OLDER = Release("0.0.1", 1_700_000_000)
CONFIG = "etc/weir/weir.toml"


def make(kind: str, program: Path, work: Path) -> Path:
    work.mkdir(parents=True)
    files = [
        replace(file, data=b"# Of an older version.\n" + file.data) if file.path == CONFIG else file
        for file in tree.files(kind, program, work, b"{}\n", b"", OLDER)
    ]
    out = work / "out"
    out.mkdir()
    if kind == "deb":
        return deb_package.make(files, program, work / "deb", out, OLDER, quick=True)
    return rpm_package.make(files, work / "rpm", out, OLDER, quick=True)
