"""Tells which version is packaged, and when it was made: from Cargo.toml and from git."""

import os
import re
import subprocess
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Release:
    # Sorts as dpkg and rpm compare: 0.1.0~git202611270722.87a3fc4d < 0.1.0 < 0.1.0+12.g87a3fc4d.
    version: str
    # Seconds since 1970: the time of everything in the packages, so that two builds are equal.
    epoch: int

    @property
    def tag(self) -> str:
        """The version as a container image's tag, which takes neither `~` nor `+`."""
        return re.sub(r"[^\w.-]", "-", self.version)

    @property
    def timestamp(self) -> str:
        """The time as RFC 3339 has it."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.epoch))


def git(*args: str) -> str | None:
    """What git says of this repository, or None where it knows nothing."""
    try:
        done = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def current() -> Release:
    base = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct")
    if not epoch:
        raise SystemExit("package: no git repository here: set SOURCE_DATE_EPOCH to the time of these sources")
    return Release(version(base), int(epoch))


def version(base: str) -> str:
    """The version of Cargo.toml, and behind it where these sources are from its tag."""
    commit = git("rev-parse", "--short=8", "HEAD")
    if commit is None:
        return base
    since = git("rev-list", "--count", f"v{base}..HEAD")
    if since is None:
        minute = time.strftime("%Y%m%d%H%M", time.gmtime(int(git("log", "-1", "--format=%ct"))))
        told = f"{base}~git{minute}.{commit}"
    elif since == "0":
        told = base
    else:
        told = f"{base}+{since}.g{commit}"
    # Files that git does not know are no part of a build.
    return told if not git("status", "--porcelain", "--untracked-files=no") else f"{told}+changed"
