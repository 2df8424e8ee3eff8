"""Installs other people's suites from public packages: Debian's, PyPI's, Go's."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from servers import Failure


def check(command: list[str], what: str, **options) -> str:
    """Runs a command that must succeed; its output."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise Failure(f"{what}: `{' '.join(command)}` failed:\n{tail}")
    return done.stdout


def install_debian(names: list[str], proof: Path) -> None:
    """Debian's packages, if `proof`, a file of theirs, is missing."""
    if proof.exists():
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Failure(f"{proof} is missing; install {' '.join(names)} (Debian's names), or run this as root")
    print(f"installing {' '.join(names)}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update"], capture_output=True, env=env)
    wait = ["-o", "DPkg::Lock::Timeout=120"]
    check(["apt-get", *wait, "install", "-y", "--no-install-recommends", *names], "Debian's packages", env=env)


def debian_version(name: str) -> str:
    return check(["dpkg-query", "--showformat=${Version}", "--show", name], name).strip()


class Lock:
    """One installation at a time below a directory."""

    def __init__(self, directory: Path):
        directory.mkdir(parents=True, exist_ok=True)
        self.file = (directory / "lock").open("w")

    def __enter__(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self.file.close()
