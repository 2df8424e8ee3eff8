"""MariaDB's own regression suite (mysql-test-run, suite main), in the mode for servers that run already."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import packages
from model import Outcome, Result, Suite
from servers import MYSQL_TEST, Account, Stage

# A test that takes longer hangs. mysql-test-run counts in minutes.
TEST_TIMEOUT_MIN = 1
# Longer names are for logins that are refused.
NAME_MAX = 80
# The rest of what it would set. The buffer pool is larger than its own, for which tests bring options that a running server can't take.
SETTINGS = ("secure-file-priv=", "server-id=1", "innodb_buffer_pool_size=64M", "innodb_flush_log_at_trx_commit=2")
RESULT_LINE = re.compile(r"^(\S+\.\S+)( '[^']*')?\s+(?:w\d+ )?\[ (pass|fail|skipped|disabled)\s*\]", re.MULTILINE)
# connect (NAME, HOST, USER, PASSWORD, ...) and change_user USER, PASSWORD in mysqltest's language.
LOGIN = re.compile(
    r"""(?ix)^(?:--)?\s*(?:
        connect \s* \(? \s* [\w$]+ \s*,\s* [\w.:$"']* \s*,\s* (?P<user>\w+) \s* (?:,\s* (?P<password>[^,);\s]*))?
      | change_user \s+ (?P<other_user>\w+) \s* (?:,\s* (?P<other_password>[^,;\s]*))?
    )"""
)


@dataclass
class Regression(Suite):
    """`flags` go to mysql-test-run: none, or --ps-protocol."""

    flags: tuple[str, ...] = ()
    batch: ClassVar[int] = 15

    def prepare(self) -> None:
        packages.install_debian(["mariadb-test", "mariadb-test-data"], MYSQL_TEST / "mariadb-test-run.pl")
        self.version = packages.debian_version("mariadb-test")

    def tests(self, stage: Stage) -> list[str]:
        return sorted("main." + path.stem for path in (MYSQL_TEST / "main").glob("*.test"))

    def server_settings(self) -> str:
        """The options that mysql-test-run itself starts servers with; what names a file of a run is dropped."""
        lines = (MYSQL_TEST / "include/default_mysqld.cnf").read_text().splitlines()
        section = lines[lines.index("[mysqld]") + 1 : lines.index("[embedded]")]
        kept = [line for line in section if "@ENV" not in line and not line.startswith("#")]
        return "\n".join([*kept, *SETTINGS])

    def weir_settings(self) -> str:
        # The server has no TLS either. Where it is offered, the client programs use it, and read the system's authorities for each connection:
        # mysqlslap then takes longer than its minute.
        return "have_ssl = false"

    def server_env(self) -> dict[str, str]:
        return {"TZ": "GMT-3"}

    def seed_sql(self) -> str:
        time_zones = (MYSQL_TEST.parent / "mysql_test_data_timezone.sql").read_text()
        return "\n".join(
            [
                "DROP DATABASE IF EXISTS test;",
                "CREATE DATABASE test CHARACTER SET latin1 COLLATE latin1_swedish_ci;",
                "USE mysql;",
                time_zones,
                # Tests call it to excuse lines in the server's log, which nobody reads here.
                "CREATE DATABASE mtr CHARACTER SET latin1;",
                "CREATE PROCEDURE mtr.add_suppression(pattern VARCHAR(255)) DO 0;",
            ]
        )

    def accounts(self) -> list[Account]:
        """root, and whoever the tests log in as, with the password that they use most."""
        passwords: dict[str, Counter[str]] = {}
        for path in sorted((MYSQL_TEST / "main").glob("*.test")):
            for line in path.read_text(errors="replace").splitlines():
                if found := LOGIN.match(line.strip()):
                    user = found["user"] or found["other_user"]
                    password = (found["password"] or found["other_password"] or "").strip("'\"")
                    if "$" not in password and len(user) <= NAME_MAX:
                        passwords.setdefault(user, Counter())[password] += 1
        passwords.pop("root", None)
        others = [Account(user, counted.most_common(1)[0][0]) for user, counted in sorted(passwords.items())]
        return [Account("root"), *others]

    def run(self, stage: Stage, tests: list[str]) -> list[Result]:
        base = self.lay_out(stage.directory)
        var = stage.directory / "var"
        # What mysql-test-run makes itself, but not beside a data directory.
        for name in ("log", "run", "tmp"):
            (var / name).mkdir()
        # Links, not a symbolic one: the server looks where a file really is (secure_file_priv).
        shutil.copytree(base / "std_data", var / "std_data", symlinks=True, copy_function=os.link)
        command = [
            "perl",
            "mariadb-test-run.pl",
            f"--extern=socket={stage.socket}",
            "--extern=user=root",
            f"--vardir={var}",
            f"--testcase-timeout={TEST_TIMEOUT_MIN}",
            "--retry=0",
            "--nowarnings",
            "--nocheck-testcases",
            "--timer",
            *self.flags,
            *tests,
        ]
        done = subprocess.run(command, cwd=base, capture_output=True, text=True, errors="replace", env=client_env(stage))
        return self.results(done.stdout + done.stderr, tests)

    def lay_out(self, directory: Path) -> Path:
        """A tree in which mysql-test-run finds programs beside itself, and may write: for each shard one."""
        base = directory / "base"
        if not base.exists():
            base.mkdir()
            for name in ("bin", "sbin", "lib", "share"):
                (base / name).symlink_to(f"/usr/{name}")
            shutil.copytree(MYSQL_TEST, base / "mysql-test", symlinks=True, ignore=shutil.ignore_patterns("suite", "plugin"))
            for name in ("suite", "plugin"):
                (base / "mysql-test" / name).symlink_to(MYSQL_TEST / name)
        return base / "mysql-test"

    def results(self, output: str, tests: list[str]) -> list[Result]:
        """mysql-test-run stops at the first failure. One test may have several lines (combinations): the worst counts."""
        marks = list(RESULT_LINE.finditer(output))
        results: dict[str, Result] = {}
        for mark, following in zip(marks, [*marks[1:], None]):
            name, word = mark[1], mark[3]
            block = output[mark.start() : following.start() if following else len(output)]
            outcome = {"pass": Outcome.PASS, "fail": Outcome.FAIL}.get(word, Outcome.SKIP)
            known = results.get(name)
            if known is None or outcome is Outcome.FAIL or known.outcome is Outcome.SKIP:
                results[name] = Result(name, outcome, block if outcome is not Outcome.PASS else "")
        if results:
            # What is left out by mysql-test-run altogether (disabled) has no line.
            if not any(result.outcome is Outcome.FAIL for result in results.values()):
                for test in tests:
                    results.setdefault(test, Result(test, Outcome.SKIP, "mysql-test-run left it out"))
        elif "No tests to run" in output:
            results = {test: Result(test, Outcome.SKIP, "mysql-test-run left it out") for test in tests}
        elif tests:
            results[tests[0]] = Result(tests[0], Outcome.FAIL, output[-4000:])
        return list(results.values())


def client_env(stage: Stage) -> dict[str, str]:
    """What mysql-test-run tells tests about servers that it has started itself, and leaves out about others."""
    names = {"MASTER_MYPORT": str(stage.port), "MASTER_MYSOCK": str(stage.socket)}
    return {**os.environ, **names, "MTR_MAX_SAVE_CORE": "0", "MTR_MAX_SAVE_DATADIR": "0"}
