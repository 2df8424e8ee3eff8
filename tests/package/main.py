"""Makes Weir's packages, installs and starts each on a machine of its own, and checks what was made.

Each machine is a set of namespaces with a copy of this one's root, in which systemd runs: root is needed, and nothing of
this machine is changed.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Before modules of other people with such names.
sys.path.insert(1, str(ROOT / "packaging"))

import build_checks
import machine
import older
from container_image import ContainerImage
from results import Results, not_run
from system_package import Deb, Rpm, SystemPackage

SYSTEM_PACKAGES: dict[str, type[SystemPackage]] = {"deb": Deb, "rpm": Rpm}
KINDS = [*SYSTEM_PACKAGES, "image"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="package-test", description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default=",".join(KINDS), help="of deb,rpm,image (default: all)")
    parser.add_argument(
        "--debug", action="store_true", help="package the program of cargo build, compressed little; its size does not count"
    )
    parser.add_argument("--compile-twice", action="store_true", help="compile in another folder, too, and compare")
    parsed = parser.parse_args()
    parsed.kinds = parsed.only.split(",")
    if unknown := set(parsed.kinds) - set(KINDS):
        parser.error(f"--only: {', '.join(sorted(unknown))}: not one of {', '.join(KINDS)}")
    return parsed


def for_scripts(parsed: argparse.Namespace) -> list[str]:
    """What scripts/package is told."""
    return ["--only", parsed.only] + (["--debug", "--quick"] if parsed.debug else [])


def program(kind: str) -> Path:
    """What was packaged, where scripts/package leaves it: static or dynamic."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    return (target / "packaging" / kind / "weir").resolve()


def run_system_package(kind: str, made: Path, work: Path, results: Results) -> None:
    [package] = made.glob(f"*.{kind}")
    before = older.make(kind, program("dynamic"), work / "older" / kind)
    with machine.Machine() as at:
        results.run_in_order(kind, SYSTEM_PACKAGES[kind](at, before, package).checks(), at.journal)


def run_image(made: Path, debug: bool, results: Results) -> None:
    [image] = made.glob("*.image.tar")
    with machine.Machine() as at:
        results.run_in_order("image", ContainerImage(at, image, debug).checks(), at.journal)


def main() -> int:
    parsed = arguments()
    results = Results()
    work = Path(tempfile.mkdtemp(prefix="weir-package-test-", dir="/var/tmp"))
    try:
        made = work / "made"
        made.mkdir()
        if not results.run("packages are made", lambda: build_checks.packages(made, for_scripts(parsed))):
            return results.end()
        # What takes the time is not compiled again: the same programs are packaged.
        again = for_scripts(parsed) + ["--binary", str(program("dynamic")), "--static-binary", str(program("static"))]
        for name, check in build_checks.BuildChecks(made, again, work).checks():
            results.run(name, check)
        if parsed.compile_twice:
            twice = lambda: build_checks.check_same_program(made, for_scripts(parsed), work)
            results.run("another folder gives the same bytes", twice)
        if why := machine.obstacle():
            not_run("installing and starting the packages", why)
            return results.end()
        for kind in parsed.kinds:
            if kind == "image":
                run_image(made, parsed.debug, results)
            else:
                run_system_package(kind, made, work, results)
        return results.end()
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
