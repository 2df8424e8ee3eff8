"""A plugin of pytest: writes what is collected, and the outcome of each step of a test, a line of JSON each.

Only the tests that wanted.txt names are run, if there is one: not every suite can be asked for one test by its name.
"""

import json
import os
from pathlib import Path

_DIRECTORY = Path(os.environ["WEIR_SUITES_OUTCOMES"])


def _write(name, row):
    with (_DIRECTORY / name).open("a") as file:
        file.write(json.dumps(row) + "\n")


def pytest_configure(config):
    for name in ("collected.jsonl", "outcomes.jsonl"):
        (_DIRECTORY / name).write_text("")


def pytest_collection_modifyitems(items):
    wanted = _DIRECTORY / "wanted.txt"
    if wanted.exists():
        names = set(wanted.read_text().splitlines())
        items[:] = [item for item in items if item.nodeid in names]


def pytest_collection_finish(session):
    for item in session.items:
        _write("collected.jsonl", [item.nodeid])


def pytest_runtest_logreport(report):
    # A set-up that passes says nothing: the call follows.
    if report.when == "call" or report.outcome != "passed":
        _write("outcomes.jsonl", [report.nodeid, report.outcome, report.longreprtext[-6000:] if report.failed else ""])
