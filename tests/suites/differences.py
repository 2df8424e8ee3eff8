"""What differs between the two ways, and why: the known reasons are in known-differences.toml."""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import dataclass
from pathlib import Path

from model import Outcome, Result, Suite
from servers import Failure

KNOWN = Path(__file__).with_name("known-differences.toml")
KINDS = ("inherent: ", "limit: ")
# The same tests in another protocol.
SAME_TESTS = {"mariadb-ps": "mariadb"}


@dataclass
class Reason:
    """One cause, and the tests of one or several suites that show it."""

    text: str
    tests: dict[str, list[str]]

    def names(self, suite: str, test: str) -> bool:
        suites = (suite, SAME_TESTS.get(suite, suite))
        return any(fnmatch.fnmatchcase(test, pattern) for name in suites for pattern in self.tests.get(name, []))


def known_reasons() -> list[Reason]:
    """Each [[difference]] of the file: `reason`, and under `tests` a list of names or patterns for each suite."""
    reasons = []
    for row in tomllib.loads(KNOWN.read_text()).get("difference", []):
        if not row["reason"].startswith(KINDS):
            raise Failure(f"{KNOWN}: a reason begins with one of {', '.join(KINDS)}: {row['reason']}")
        reasons.append(Reason(row["reason"], row["tests"]))
    return reasons


def chosen(tests: list[str], patterns: list[str] | None) -> list[str]:
    """The tests that match, with or without the part before the first dot."""
    if not patterns:
        return tests

    def matches(test: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for name in (test, test.partition(".")[2]) for pattern in patterns)

    return [test for test in tests if matches(test)]


@dataclass
class Comparison:
    suite: Suite
    direct: dict[str, Result]
    through: dict[str, Result]
    reasons: list[Reason]

    def passed(self) -> list[str]:
        """Tests that pass direct and were run through Weir."""
        return [test for test, result in self.direct.items() if result.outcome is Outcome.PASS and test in self.through]

    def differing(self) -> list[str]:
        return [test for test in self.passed() if self.through[test].outcome is not Outcome.PASS]

    def reason(self, test: str) -> str | None:
        return next((reason.text for reason in self.reasons if reason.names(self.suite.name, test)), None)

    def new(self) -> list[str]:
        return [test for test in self.differing() if self.reason(test) is None]

    def gone(self) -> list[str]:
        """Known differences that are none any more: their line can be removed."""
        return [test for test in self.passed() if self.through[test].outcome is Outcome.PASS and self.reason(test) is not None]

    def summary(self) -> str:
        passed, differing = len(self.passed()), len(self.differing())
        counted = f"{passed} of {len(self.direct)} tests pass direct; {passed - differing} of these through Weir"
        lines = [f"{self.suite.name} {self.suite.version}: {counted}"]
        lines += [f"  NEW DIFFERENCE {test}" for test in self.new()]
        lines += [f"  known, but passes now: {test}" for test in self.gone()]
        return "\n".join(lines)

    def markdown(self) -> str:
        rows = [f"# {self.suite.title} ({self.suite.version})", "", self.summary(), ""]
        rows += ["| test | direct | through Weir | reason |", "| --- | --- | --- | --- |"]
        for test in self.differing():
            reason = self.reason(test) or "**new**"
            rows.append(f"| {test} | pass | {self.through[test].outcome.value} | {reason} |")
        return "\n".join(rows) + "\n"


def compare(suite: Suite, direct: dict[str, Result], through: dict[str, Result]) -> Comparison:
    return Comparison(suite, direct, through, known_reasons())
