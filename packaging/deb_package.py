"""Makes the .deb, with dpkg's own tools."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import tree
from release import Release

CONFFILES = ["/etc/weir/weir.toml"]
SCRIPTS = ["postinst", "prerm", "postrm"]

CONTROL = """Package: weir
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size_kib}
Depends: {depends}
Section: database
Priority: optional
Description: MySQL proxy that makes a cluster look like one server
 Weir makes a MySQL-family cluster look like one server: MariaDB Galera, MySQL
 Group Replication, or a source with its replicas. Writes go to one node, plain
 reads to all the others, and a session never sees an older state than it has
 written or seen.
 .
 It has the tables, commands and query rules of ProxySQL, and reads its
 configuration.
"""


def architecture() -> str:
    told = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True)
    return told.stdout.strip()


def library_dependencies(program: Path, work: Path) -> str:
    """The packages of the shared libraries that the program needs, in the versions that have its symbols."""
    source = work / "shlibdeps"
    (source / "debian").mkdir(parents=True)
    (source / "debian/control").write_text("Source: weir\n\nPackage: weir\nArchitecture: any\n")
    told = subprocess.run(
        ["dpkg-shlibdeps", "-O", f"-e{program}"], cwd=source, check=True, capture_output=True, text=True
    )
    found = re.fullmatch(r"shlibs:Depends=(.+)", told.stdout.strip())
    if found is None:
        raise SystemExit(f"package: dpkg-shlibdeps says: {told.stdout}{told.stderr}")
    return found[1]


def control(files: list[tree.File], depends: str, release: Release) -> str:
    # As dpkg-gencontrol counts: each file in whole KiB, and one for each directory.
    folders = {parent for file in files for parent in Path(file.path).parents}
    size_kib = sum(-(-len(file.data) // 1024) for file in files) + len(folders)
    return CONTROL.format(
        version=release.version,
        architecture=architecture(),
        maintainer=tree.MAINTAINER,
        size_kib=size_kib,
        # systemd-sysusers makes the user; the others are what systemd has been split into.
        depends=f"{depends}, systemd | systemd-standalone-sysusers | systemd-sysusers",
    )


def make(
    files: list[tree.File], program: Path, work: Path, out: Path, release: Release, quick: bool = False
) -> Path:
    """Makes the package of the files; `work` is a directory of its own. `quick`: compressed little, for tests."""
    shutil.rmtree(work, ignore_errors=True)
    root = work / "root"
    sums = "".join(f"{hashlib.md5(file.data).hexdigest()}  {file.path}\n" for file in files)
    own = [
        tree.File("DEBIAN/control", control(files, library_dependencies(program, work), release).encode()),
        tree.File("DEBIAN/conffiles", "".join(f"{path}\n" for path in CONFFILES).encode()),
        tree.File("DEBIAN/md5sums", sums.encode()),
    ]
    own += [
        tree.File(f"DEBIAN/{name}", (tree.PACKAGING / "deb" / name).read_bytes(), 0o755) for name in SCRIPTS
    ]
    tree.write(files + own, root, release)
    made = out / f"weir_{release.version}_{architecture()}.deb"
    # xz, which every dpkg reads; one thread, so that the number of processors does not show.
    compression = ["-Zgzip", "-z1"] if quick else ["-Zxz", "--threads-max=1"]
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", *compression, "--build", root, made],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch)},
    )
    return made
