"""mariadb-client-test: the server's tests of its C API, each a function of one program."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import ClassVar

import packages
from model import Outcome, Result, Suite
from servers import MYSQL_TEST, Stage, program_path

TEST_TIMEOUT_S = 60


@dataclass
class ClientLibrary(Suite):
    batch: ClassVar[int] = 40

    def prepare(self) -> None:
        packages.install_debian(["mariadb-test", "mariadb-test-data"], MYSQL_TEST / "mariadb-test-run.pl")
        self.version = packages.debian_version("mariadb-test")

    def tests(self, stage: Stage) -> list[str]:
        told = packages.check([program_path("mariadb-client-test"), "--no-defaults", "--show-tests"], "the list of tests")
        return re.findall(r"^\s*(test_\w+)", told, re.MULTILINE)

    def server_settings(self) -> str:
        return "local-infile\ncharacter-set-server=latin1\nlog-bin-trust-function-creators=1\nsecure-file-priv="

    def run(self, stage: Stage, tests: list[str]) -> list[Result]:
        results = []
        for test in tests:
            results.append(run_one(stage, test))
            if results[-1].outcome is Outcome.FAIL:
                break
        return results


def run_one(stage: Stage, test: str) -> Result:
    command = [
        program_path("mariadb-client-test"),
        "--no-defaults",
        f"--socket={stage.socket}",
        "--user=root",
        "--testcase",
        "--silent",
        f"--vardir={stage.directory}",
        test,
    ]
    try:
        done = subprocess.run(
            command, cwd=stage.directory, capture_output=True, text=True, errors="replace", timeout=TEST_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as late:
        told = (late.stdout or b"") + (late.stderr or b"")
        return Result(test, Outcome.FAIL, f"timeout after {TEST_TIMEOUT_S} s\n" + told.decode(errors="replace")[-4000:])
    if done.returncode == 0:
        return Result(test, Outcome.PASS)
    told = (done.stdout + done.stderr)[-6000:]
    return Result(test, Outcome.FAIL, f"exit status {done.returncode}\n{told}")
