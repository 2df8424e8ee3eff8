"""What a suite is, and what running a test gives."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar

from servers import Account, Stage


class Outcome(str, Enum):
    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Result:
    test: str
    outcome: Outcome
    # What the suite printed about a failure: the difference, the assertion.
    output: str = ""


@dataclass
class Suite:
    """A suite of somebody else's tests. The classes below it say how one is installed and run."""

    name: str
    title: str
    # Directory of things that are downloaded once.
    cache: Path
    # Tests that are handed to one start of the servers, unless one fails.
    batch: ClassVar[int] = 25
    # Whether a test that fails direct is tried again alone: it may fail for what others have left behind.
    alone_direct: ClassVar[bool] = True
    # Whether the list of tests depends on the server.
    lists_from_server: ClassVar[bool] = False
    version: str = field(default="", init=False)

    def prepare(self) -> None:
        """Installs the suite, and sets `version`."""
        raise NotImplementedError

    def tests(self, stage: Stage) -> list[str]:
        """The names of all tests. `stage` runs if `lists_from_server` says that it is needed."""
        raise NotImplementedError

    def server_settings(self) -> str:
        """Lines for MariaDB's option file."""
        return ""

    def server_env(self) -> dict[str, str]:
        return {}

    def seed_sql(self) -> str:
        """What the server holds before the first test."""
        return ""

    def accounts(self) -> list[Account]:
        return [Account("root")]

    def weir_settings(self) -> str:
        """Lines for [mysql_variables] of Weir's configuration."""
        return ""

    def run(self, stage: Stage, tests: list[str]) -> list[Result]:
        """Runs `tests` on fresh servers. May stop after a failure: what has no result then is run on servers that are fresh again."""
        raise NotImplementedError


WORDS = {"passed": Outcome.PASS, "failed": Outcome.FAIL, "skipped": Outcome.SKIP}
HANGS = "has not ended"


def settled(steps: Iterable[tuple[str, str, str]], log: str = "") -> list[Result]:
    """Results of a runner that tells step by step (test, word, output): what is no pass stays, and "started" alone is a test that hangs."""
    results: dict[str, Result] = {}
    for test, word, output in steps:
        known = results.get(test)
        if word == "started":
            results[test] = Result(test, Outcome.FAIL, f"{HANGS}\n{log[-6000:]}")
        elif known is None or known.outcome is Outcome.PASS or known.output.startswith(HANGS):
            results[test] = Result(test, WORDS[word], output)
    return list(results.values())


def safe_name(test: str) -> str:
    """A test's name as the name of a file."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", test)[:150]
