"""Suites of Python packages, run by pytest in a virtual environment of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import packages
from model import Result, Suite, settled
from servers import Account, Failure, Stage

TEST_TIMEOUT_S = 120
HERE = Path(__file__).parent
USER, PASSWORD = "suites", "suites"


@dataclass
class PythonSuite(Suite):
    """`requirements` are PyPI's packages with their versions: the first is what is tested."""

    requirements: tuple[str, ...] = ()
    batch: ClassVar[int] = 1_000_000

    @property
    def environment(self) -> Path:
        return self.cache / f"python-{self.name}"

    def prepare(self) -> None:
        self.version = self.requirements[0]
        wanted = "\n".join([*self.requirements, "pytest==8.4.2", "pytest-timeout==2.4.0"]) + "\n"
        stamp = self.environment / "requirements.txt"
        with packages.Lock(self.cache):
            if stamp.exists() and stamp.read_text() == wanted:
                return
            shutil.rmtree(self.environment, ignore_errors=True)
            packages.check([sys.executable, "-m", "venv", str(self.environment)], "a virtual environment")
            packages.check([str(self.python), "-m", "pip", "install", "--quiet", *wanted.split()], "PyPI's packages")
            stamp.write_text(wanted)

    @property
    def python(self) -> Path:
        return self.environment / "bin/python"

    def source(self) -> Path:
        """The source archive of what is tested, unpacked beside the environment: only there are its tests."""
        directory = self.cache / f"source-{self.name}-{self.version}"
        with packages.Lock(self.cache):
            if not directory.exists():
                unpacked = Path(tempfile.mkdtemp(dir=self.cache))
                name = self.version.partition("==")[0]
                pip = [str(self.python), "-m", "pip", "download", "--quiet", "--no-deps", f"--no-binary={name}", f"--dest={unpacked}"]
                packages.check([*pip, self.version], "PyPI's source archive")
                archive = next(unpacked.iterdir())
                shutil.unpack_archive(archive, unpacked)
                archive.unlink()
                next(unpacked.iterdir()).rename(directory)
                unpacked.rmdir()
        return directory

    def accounts(self) -> list[Account]:
        return [*super().accounts(), Account(USER, PASSWORD)]

    def seed_sql(self) -> str:
        return f"CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;"

    def lay_out(self, stage: Stage) -> tuple[Path, list[str]]:
        """Writes the tests and their configuration into a directory; what pytest is told about them."""
        raise NotImplementedError

    def tests(self, stage: Stage) -> list[str]:
        directory, arguments = self.lay_out(stage)
        (directory / "wanted.txt").unlink(missing_ok=True)
        done = self.pytest(stage, directory, [*arguments, "--collect-only"])
        found = [row[0] for row in rows(directory / "collected.jsonl")]
        if not found:
            raise Failure(f"pytest has found no test:\n{(done.stdout + done.stderr)[-3000:]}")
        return found

    def run(self, stage: Stage, tests: list[str]) -> list[Result]:
        directory, arguments = self.lay_out(stage)
        (directory / "wanted.txt").write_text("\n".join(tests))
        told = self.pytest(stage, directory, arguments)
        (directory / "pytest.log").write_text(told.stdout + told.stderr)
        return settled(rows(directory / "outcomes.jsonl"))

    def environment_variables(self, stage: Stage) -> dict[str, str]:
        """For pytest, in addition."""
        return {}

    def pytest(self, stage: Stage, directory: Path, arguments: list[str]) -> subprocess.CompletedProcess:
        command = [str(self.python), "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_outcomes"]
        env = {**os.environ, "PYTHONPATH": f"{directory}:{HERE}", "WEIR_SUITES_OUTCOMES": str(directory)}
        env |= self.environment_variables(stage)
        return subprocess.run(
            [*command, f"--timeout={TEST_TIMEOUT_S}", *arguments], cwd=directory, env=env, capture_output=True, text=True
        )


def rows(path: Path) -> list:
    """The lines of JSON that a plugin has written; none if it was never loaded."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass
class SqlAlchemy(PythonSuite):
    """The suite for dialects, which SQLAlchemy's package contains; its other tests are in no package."""

    lists_from_server: ClassVar[bool] = True

    def lay_out(self, stage: Stage) -> tuple[Path, list[str]]:
        directory = stage.directory / "suite"
        directory.mkdir(exist_ok=True)
        (directory / "conftest.py").write_text(
            "import sqlalchemy.testing.provision\nfrom sqlalchemy.testing.plugin.pytestplugin import *\n"
        )
        (directory / "test_dialect.py").write_text(
            # One class compares SQLAlchemy's own compilers, whose names come in another order each time.
            "from sqlalchemy.testing.suite import *\ndel ArgSignatureTest\n"
        )
        (directory / "setup.cfg").write_text(
            "[sqla_testing]\nprofile_file=profiles.txt\nrequirement_cls=sqlalchemy.testing.requirements:SuiteRequirements\n"
        )
        url = f"mysql+pymysql://{USER}:{PASSWORD}@{stage.address}:{stage.port}/test"
        return directory, [f"--dburi={url}", "test_dialect.py"]

    def seed_sql(self) -> str:
        schemas = "".join(f"CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb4;" for name in ("test", "test_schema"))
        return super().seed_sql() + schemas


@dataclass
class Aiomysql(PythonSuite):
    """aiomysql's tests, with asyncio's and uvloop's loop. By its socket: over TCP each begins by asking the server whether it sees TLS."""

    def lay_out(self, stage: Stage) -> tuple[Path, list[str]]:
        directory = stage.directory / "suite"
        shutil.copytree(self.source() / "tests", directory / "tests", dirs_exist_ok=True)
        return directory, [f"--mysql-unix-socket=server={stage.socket}", "tests"]

    def server_settings(self) -> str:
        return "local-infile\ncharacter-set-server=utf8mb4"


@dataclass
class ConnectorPython(PythonSuite):
    """MySQL Connector/Python's tests, of its Python part and of its C extension, in their mode for servers that run already."""

    lists_from_server: ClassVar[bool] = True
    # About a hundred ask for what MariaDB has not.
    alone_direct: ClassVar[bool] = False

    def lay_out(self, stage: Stage) -> tuple[Path, list[str]]:
        directory = stage.directory / "suite"
        # lib is there for a build tool that reads the version in it; it is not in Python's path.
        for name in ("tests", "cpydist", "examples", "lib"):
            shutil.copytree(self.source() / name, directory / name, dirs_exist_ok=True)
        shutil.copyfile(HERE / "connector_python_conftest.py", directory / "conftest.py")
        # The first two ask for other packages. The tear-down of the third fails on MariaDB, and is told of whichever test was last.
        left_out = ["--ignore=tests/test_django.py", "--ignore=tests/ai", "--deselect=tests/test_connection.py::WL14237"]
        return directory, [*left_out, "tests"]

    def environment_variables(self, stage: Stage) -> dict[str, str]:
        return {"WEIR_SUITES_HOST": stage.address, "WEIR_SUITES_PORT": str(stage.port)}

    def server_settings(self) -> str:
        # Its asyncio part fails on a connection without TLS.
        keys = self.source() / "tests/data/ssl"
        tls = f"ssl-cert={keys}/tests_server_cert.pem\nssl-key={keys}/tests_server_key.pem"
        return f'local-infile\ncharacter-set-server=utf8mb4\nsql_mode=""\nmax_allowed_packet=512M\n{tls}'

    def seed_sql(self) -> str:
        root = "CREATE USER root@'%'; GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;"
        return f"{root} CREATE DATABASE myconnpy CHARACTER SET utf8mb4;"
