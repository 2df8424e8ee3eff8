"""MariaDB Connector/J: Debian's source package contains its tests. Maven builds them, JUnitOutcomes.java runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import packages
from model import Result, Suite, settled
from servers import Account, Failure, Stage, program_path

PACKAGE = "mariadb-connector-java"
TEST_TIMEOUT_S = 120
RUNNER = Path(__file__).with_name("JUnitOutcomes.java")
OUTCOME = re.compile(r"^outcome\t(\S+)\t(\w+)\t(.*)$", re.MULTILINE)


@dataclass
class ConnectorJ(Suite):
    batch: ClassVar[int] = 1_000_000

    def prepare(self) -> None:
        packages.install_debian(["maven", "default-jdk-headless"], Path("/usr/bin/mvn"))
        directory = self.cache / PACKAGE
        with packages.Lock(self.cache):
            if not (directory / "classpath.txt").exists():
                shutil.rmtree(directory, ignore_errors=True)
                packages.debian_source(PACKAGE, directory)
                goals = ["test-compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath.txt", "-Dmdep.includeScope=test"]
                packages.check([program_path("mvn"), "--quiet", "--batch-mode", *goals], "building Connector/J's tests", cwd=directory)
        self.directory = directory
        self.version = re.search(r"<version>([\d.]+)", (directory / "pom.xml").read_text())[1]

    def java(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        path = f"target/test-classes:target/classes:{(self.directory / 'classpath.txt').read_text().strip()}"
        command = [program_path("java"), "-cp", path, str(RUNNER), *arguments]
        done = subprocess.run(
            command, cwd=self.directory, env={**os.environ, **(env or {})}, capture_output=True, text=True, errors="replace"
        )
        return done.stdout + done.stderr

    def tests(self, stage: Stage) -> list[str]:
        told = self.java("list", "target/test-classes")
        found = [name for name, _, _ in OUTCOME.findall(told)]
        if not found:
            raise Failure(f"Connector/J's tests can't be listed:\n{told[-3000:]}")
        return found

    def server_settings(self) -> str:
        return "local-infile\nmax_allowed_packet=40M\ncharacter-set-server=utf8mb4\nplugin-load-add=auth_ed25519"

    def seed_sql(self) -> str:
        root = "CREATE USER root@'%'; GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;"
        return f"{root} CREATE DATABASE testj CHARACTER SET utf8mb4;"

    def accounts(self) -> list[Account]:
        return [*super().accounts(), Account("identityUser", "!Passw0rd3Works")]

    def weir_settings(self) -> str:
        # The driver looks for TLS in what is offered; the server has none.
        return "have_ssl = false"

    def run(self, stage: Stage, tests: list[str]) -> list[Result]:
        wanted = stage.directory / "wanted.txt"
        wanted.write_text("\n".join(tests))
        env = {"TEST_DB_HOST": stage.address, "TEST_DB_PORT": str(stage.port), "TEST_DB_USER": "root", "TEST_DB_DATABASE": "testj"}
        told = self.java("run", str(wanted), str(TEST_TIMEOUT_S), env=env)
        (stage.directory / "junit.log").write_text(told)
        return settled(((test, word, output.replace("\\n", "\n")) for test, word, output in OUTCOME.findall(told)), told)
