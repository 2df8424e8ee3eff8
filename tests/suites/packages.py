"""Installs other people's suites from public packages: Debian's, PyPI's, Go's."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from servers import Failure

DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


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


def debian_source(name: str, directory: Path) -> None:
    """The source of Debian's package `name` as its authors have published it, without Debian's changes."""
    work = directory.with_name(f"{directory.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    (work / "lists/partial").mkdir(parents=True)
    # Few machines have lines for sources: they are made of the lines for packages, and known to this run alone.
    fields = f"deb-src [signed-by={DEBIAN_KEYS}] $(REPO_URI) $(RELEASE) $(COMPONENT)"
    told = check(["apt-get", "indextargets", "--format", fields, "Created-By: Packages", "Origin: Debian"], "apt's sources")
    (work / "sources.list").write_text(told)
    apt = ["apt-get", f"-oDir::Etc::SourceList={work}/sources.list", "-oDir::Etc::SourceParts=/dev/null", f"-oDir::State::Lists={work}/lists"]
    check([*apt, "update"], "Debian's lists of sources")
    check([*apt, "source", "--download-only", "--tar-only", name], f"Debian's source package {name}", cwd=work)
    archive = next(work.glob("*.orig.tar.*"))
    shutil.unpack_archive(archive, work / "unpacked")
    next((work / "unpacked").iterdir()).rename(directory)
    shutil.rmtree(work)
