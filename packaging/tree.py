"""Lists the files of a package: what they are called, who may read them, and what is in them."""

import email.utils
import gzip
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from release import ROOT, Release

PACKAGING = ROOT / "packaging"
MAINTAINER = "The authors of Weir <weir@localhost>"


@dataclass(frozen=True)
class File:
    path: str
    data: bytes
    mode: int = 0o644


# Where the shells of each family of distributions look for zsh's functions.
ZSH = {"deb": "usr/share/zsh/vendor-completions/_weir", "rpm": "usr/share/zsh/site-functions/_weir"}


def compressed(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=9, mtime=0)


def copyright_file() -> bytes:
    """What Debian asks for: the licence by its name, since its text is on every machine."""
    return b"""Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weir
Comment: The licences of the libraries in the program are in third-party-licences.gz, and by library in weir.cdx.json.

Files: *
Copyright: 2026, The authors of Weir
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
"""


def made_by_weir(program: Path, work: Path, family: str) -> list[File]:
    """The manual pages and completions: the program makes them from the definition of its command line."""
    manual = work / "manual"
    shutil.rmtree(manual, ignore_errors=True)
    subprocess.run([program, "manual", manual], check=True)
    pages = [
        File(f"usr/share/man/man{page.suffix[1:]}/{page.name}.gz", compressed(page.read_bytes()))
        for page in manual.iterdir()
    ]
    places = {
        "bash": "usr/share/bash-completion/completions/weir",
        "fish": "usr/share/fish/vendor_completions.d/weir.fish",
        "zsh": ZSH[family],
    }
    for shell, place in places.items():
        made = subprocess.run([program, "completions", shell], check=True, capture_output=True)
        pages.append(File(place, made.stdout))
    return pages


def debian_changelog(release: Release) -> bytes:
    """What Debian's tools read; the changes themselves are in CHANGELOG.md."""
    when = email.utils.formatdate(release.epoch)
    entry = f"weir ({release.version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- {MAINTAINER}  {when}\n"
    return entry.encode()


def documents(family: str, sbom: bytes, licences: bytes, release: Release) -> list[File]:
    doc = "usr/share/doc/weir"
    files = [
        File(f"{doc}/weir.cdx.json", sbom),
        File(f"{doc}/README.md", (ROOT / "README.md").read_bytes()),
    ]
    changes = (ROOT / "CHANGELOG.md").read_bytes()
    if family == "deb":
        overrides = PACKAGING / "deb/lintian-overrides"
        files.append(File("usr/share/lintian/overrides/weir", overrides.read_bytes()))
        files.append(File(f"{doc}/changelog.gz", compressed(debian_changelog(release))))
        files.append(File(f"{doc}/CHANGELOG.md.gz", compressed(changes)))
        files.append(File(f"{doc}/copyright", copyright_file()))
        files.append(File(f"{doc}/third-party-licences.gz", compressed(licences)))
    else:
        own = "usr/share/licenses/weir"
        files.append(File(f"{doc}/CHANGELOG.md", changes))
        files.append(File(f"{own}/LICENSE", (ROOT / "LICENSE").read_bytes()))
        files.append(File(f"{own}/third-party-licences", licences))
    return files


def files(
    family: str, program: Path, work: Path, sbom: bytes, licences: bytes, release: Release
) -> list[File]:
    """All files of a .deb or .rpm, ordered by path."""
    own = [
        File("usr/bin/weir", program.read_bytes(), 0o755),
        File("usr/lib/systemd/system/weir.service", (PACKAGING / "weir.service").read_bytes()),
        File("usr/lib/sysusers.d/weir.conf", (PACKAGING / "sysusers.conf").read_bytes()),
        File("etc/weir/weir.toml", (PACKAGING / "weir.toml").read_bytes(), 0o640),
    ]
    own += made_by_weir(program, work, family) + documents(family, sbom, licences, release)
    return sorted(own, key=lambda file: file.path)


def write(files: list[File], root: Path, release: Release) -> None:
    """Writes the files below `root`, with the modes and times of the package whatever the umask is."""
    for file in files:
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        path.chmod(file.mode)
    settle(root, release)


def settle(root: Path, release: Release) -> None:
    """Gives directories their mode, and everything the time of the release."""
    for folder, _, names in os.walk(root, topdown=False):
        os.chmod(folder, 0o755)
        for name in [*(os.path.join(folder, name) for name in names), folder]:
            os.utime(name, (release.epoch, release.epoch), follow_symlinks=False)
