"""Django's test runner, as its settings name it: writes the outcome of each test, a line of JSON each, and of collected tests the names.

Only the tests that wanted.txt names are run, if there is one; without it none: then tests are only collected.
"""

import faulthandler
import json
import os
import unittest
from pathlib import Path

from django.test.runner import DiscoverRunner

_DIRECTORY = Path(os.environ["WEIR_SUITES_OUTCOMES"])
_TEST_TIMEOUT_S = int(os.environ["WEIR_SUITES_TIMEOUT"])
# For the tables of all apps, which are made in front of the first test.
_SETUP_TIMEOUT_S = 900


def _write(name, row):
    with (_DIRECTORY / name).open("a") as file:
        file.write(json.dumps(row) + "\n")


def _flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _flat(item)
        else:
            yield item


class Result(unittest.TextTestResult):
    """A test that hangs ends the process: "started" is then the last that is told about it."""

    wanted = ()

    def startTest(self, test):
        super().startTest(test)
        self._tell(test, "started")
        faulthandler.dump_traceback_later(_TEST_TIMEOUT_S, exit=True)

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.dump_traceback_later(_TEST_TIMEOUT_S, exit=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._tell(test, "passed")

    def addError(self, test, err):
        super().addError(test, err)
        self._tell(test, "failed", self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._tell(test, "failed", self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._tell(test, "failed", f"{subtest}: {self._exc_info_to_string(err, test)}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._tell(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._tell(test, "skipped", "fails as Django expects")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._tell(test, "passed")

    def _tell(self, test, outcome, output=""):
        names = [test.id()]
        if not isinstance(test, unittest.TestCase):
            # "setUpClass (module.Class)": what happens there happens to each test of the class.
            prefix = test.id().partition("(")[2].rstrip(")") + "."
            names = [name for name in self.wanted if name.startswith(prefix)]
        for name in names:
            _write("outcomes.jsonl", [name, outcome, output[-6000:]])


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result

    def build_suite(self, test_labels=None, **kwargs):
        tests = list(_flat(super().build_suite(test_labels, **kwargs)))
        wanted = _DIRECTORY / "wanted.txt"
        Result.wanted = set(wanted.read_text().splitlines()) if wanted.exists() else set()
        return self.test_suite([test for test in tests if test.id() in Result.wanted])

    def run_tests(self, test_labels, **kwargs):
        for name in ("collected.jsonl", "outcomes.jsonl"):
            (_DIRECTORY / name).write_text("")
        if (_DIRECTORY / "wanted.txt").exists():
            faulthandler.dump_traceback_later(_SETUP_TIMEOUT_S, exit=True)
            try:
                return super().run_tests(test_labels, **kwargs)
            finally:
                faulthandler.cancel_dump_traceback_later()
        self.setup_test_environment()
        for test in _flat(super().build_suite(test_labels)):
            _write("collected.jsonl", [test.id()])
        return 0
