"""Makes the .rpm, with rpmbuild and packaging/weir.spec."""

import os
import shutil
import subprocess
from pathlib import Path

import tree
from release import Release


def make(files: list[tree.File], work: Path, out: Path, release: Release, quick: bool = False) -> Path:
    """Makes the package of the files; `work` is a directory of its own. `quick`: compressed little, for tests."""
    shutil.rmtree(work, ignore_errors=True)
    stage, top = work / "stage", work / "top"
    tree.write(files, stage, release)
    defines = {
        "_topdir": top,
        "_rpmdir": top / "made",
        "_tmppath": top / "tmp",
        # xz, which every rpm reads.
        "_binary_payload": "w1.gzdio" if quick else "w6.xzdio",
        "weir_version": release.version,
        "weir_stage": stage,
        "weir_sysusers": tree.PACKAGING / "sysusers.conf",
    }
    (top / "tmp").mkdir(parents=True)
    command = ["rpmbuild", "-bb", "--quiet", "--nodeps"]
    for name, value in defines.items():
        command += ["--define", f"{name} {value}"]
    done = subprocess.run(
        [*command, tree.PACKAGING / "weir.spec"],
        capture_output=True,
        text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch), "LC_ALL": "C", "TZ": "UTC"},
    )
    if done.returncode != 0:
        raise SystemExit(f"package: rpmbuild fails:\n{done.stdout}{done.stderr}")
    found = list((top / "made").rglob("*.rpm"))
    if len(found) != 1:
        raise SystemExit(f"package: rpmbuild has made {found}")
    made = out / found[0].name
    shutil.copyfile(found[0], made)
    return made
