"""go-sql-driver/mysql: its module, as the Go module proxy hands it out, contains its tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import packages
from model import Outcome, Result, Suite
from servers import Account, Stage, program_path

MODULE = "github.com/go-sql-driver/mysql"
VERSION = "v1.10.1"
RUN_TIMEOUT_S = 600
OUTCOMES = {"PASS": Outcome.PASS, "FAIL": Outcome.FAIL, "SKIP": Outcome.SKIP}
VERDICT = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+)", re.MULTILINE)


@dataclass
class GoDriver(Suite):
    batch: ClassVar[int] = 10_000

    @property
    def program(self) -> Path:
        return self.cache / f"go-sql-driver-{VERSION}" / "driver.test"

    def prepare(self) -> None:
        self.version = VERSION
        with packages.Lock(self.cache):
            if self.program.exists():
                return
            told = packages.check([program_path("go"), "mod", "download", "-json", f"{MODULE}@{VERSION}"], "Go's module", cwd="/")
            source = self.program.parent
            shutil.rmtree(source, ignore_errors=True)
            shutil.copytree(json.loads(told)["Dir"], source, copy_function=shutil.copyfile)
            packages.check([program_path("go"), "test", "-c", "-o", str(self.program), "."], "building Go's tests", cwd=source)

    def tests(self, stage: Stage) -> list[str]:
        told = packages.check([str(self.program), "-test.list", "^Test"], "the list of Go's tests")
        return [line for line in told.splitlines() if line.startswith("Test")]

    def server_settings(self) -> str:
        return "local-infile\nmax_allowed_packet=64M"

    def seed_sql(self) -> str:
        # TCP logins come from the shard's address, not from localhost.
        return "CREATE DATABASE gotest; CREATE USER gotest@'%'; GRANT ALL ON *.* TO gotest@'%' WITH GRANT OPTION;"

    def accounts(self) -> list[Account]:
        return [*super().accounts(), Account("gotest")]

    def run(self, stage: Stage, tests: list[str]) -> list[Result]:
        command = [str(self.program), "-test.v", f"-test.timeout={RUN_TIMEOUT_S}s", "-test.run", f"^({'|'.join(tests)})$"]
        env = {**os.environ, "MYSQL_TEST_USER": "gotest", "MYSQL_TEST_ADDR": f"{stage.address}:{stage.port}"}
        done = subprocess.run(
            command, cwd=self.program.parent, env=env, capture_output=True, text=True, errors="replace"
        )
        told = done.stdout + done.stderr
        results = {name: Result(name, OUTCOMES[word], told[-20_000:] if word == "FAIL" else "") for word, name in VERDICT.findall(told)}
        return list(results.values())
