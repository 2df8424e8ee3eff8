"""Runs other people's test suites straight at a server and through Weir, and compares test by test.

`scripts/suites --help` tells the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import differences  # noqa: E402
from catalogue import SUITES  # noqa: E402
from model import Outcome, Result, Suite, safe_name  # noqa: E402
from servers import MONITOR, Failure, Stage, Template, kill_all  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
# A failure counts if the test fails so often in a row, alone, on servers that are fresh each time.
TRIES_ALONE = 1
# What mysql-test-run says about a test that hangs: to try it again costs minutes.
TIMED_OUT = "timeout after"

# What mariadb-install-db adds for first steps: an account without a name, rights for everybody.
BARE_SQL = """DELETE FROM mysql.global_priv WHERE User IN ('', 'PUBLIC');
DELETE FROM mysql.db WHERE User IN ('', 'PUBLIC');
FLUSH PRIVILEGES;
"""

EXAMPLES = """examples:
  scripts/suites --list
  scripts/suites mariadb                        MariaDB's regression suite, both ways
  scripts/suites mariadb --only 'ps' --only 'grant*'
  scripts/suites mariadb-client go
  scripts/suites mariadb --rerun                only what differed in the last run, once more
  WEIR_BIN=target/release/weir scripts/suites mariadb --shards 4

Exit status: 0 if every difference is in tests/suites/known-differences.toml, 1 if one is not, 2 if it could not run.
The direct results are kept and used again until the suite's version changes (--direct runs them anew)."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/suites",
        description="Runs other people's test suites straight at a server and through Weir, and tells every difference.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="names of --list; without any, all of them")
    parser.add_argument("--list", action="store_true", help="the suites")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="tests whose name matches (*, ? and []); may be repeated")
    parser.add_argument("--rerun", action="store_true", help="only tests that differed in the last run")
    parser.add_argument("--resume", action="store_true", help="only tests that an interrupted run has not come to")
    parser.add_argument("--direct", action="store_true", help="run all tests direct anew")
    parser.add_argument("--shards", type=int, default=2, metavar="N", help="servers that run tests side by side (2)")
    parser.add_argument("--address", default=os.environ.get("WEIR_SUITES_ADDRESS", "127.0.0.41"), help="first of N addresses (127.0.0.41)")
    parser.add_argument("--work", type=Path, default=ROOT / "target/suites", metavar="DIR", help="data, logs and reports (target/suites)")
    return parser.parse_args()


def weir_binary() -> Path:
    path = Path(os.environ.get("WEIR_BIN", ROOT / "target/debug/weir")).resolve()
    if not path.exists():
        raise Failure(f"{path} is missing: run `cargo build -p weir`, or set WEIR_BIN")
    return path


@dataclass
class Way:
    """Direct, or through Weir: the results, and what failures have printed."""

    name: str
    weir: Path | None
    work: Path
    results: dict[str, Result]

    def take(self, result: Result) -> None:
        self.results[result.test] = result
        evidence = self.work / "failures" / f"{safe_name(result.test)}.txt"
        evidence.parent.mkdir(parents=True, exist_ok=True)
        if result.outcome is Outcome.FAIL:
            evidence.write_text(result.output)
        else:
            evidence.unlink(missing_ok=True)

    def passed(self, test: str) -> bool:
        return test in self.results and self.results[test].outcome is Outcome.PASS

    def counted(self) -> str:
        return ", ".join(
            f"{sum(result.outcome is outcome for result in self.results.values())} {outcome.value}" for outcome in Outcome
        )


class Run:
    """One suite, both ways. Shards take batches of tests: first direct, then what has passed through Weir."""

    def __init__(self, suite: Suite, options: argparse.Namespace, work: Path, weir: Path):
        self.suite = suite
        self.options = options
        self.work = work
        self.direct = Way("direct", None, work / "direct", load(work / "direct.json", suite.version))
        self.through = Way("weir", weir, work / "weir", load(work / "weir.json", suite.version))
        self.lock = threading.Lock()
        self.finished = 0
        seed = f"{BARE_SQL}{suite.seed_sql()}\nCREATE USER {MONITOR}@'%';\n"
        self.template = Template(work / "template", suite.server_settings(), seed, suite.server_env())
        self.template.make(options.address)

    def tests(self) -> list[str]:
        stage = self.stage(0, self.direct)
        try:
            if self.suite.lists_from_server:
                stage.renew()
            return self.suite.tests(stage)
        finally:
            stage.end(kill=True)

    def execute(self, tests: list[str]) -> None:
        size = self.suite.batch
        batches = [tests[start : start + size] for start in range(0, len(tests), size)]
        shards = max(1, min(self.options.shards, len(batches)))
        with ThreadPoolExecutor(shards) as pool:
            for shard in [pool.submit(self.work_off, number, batches, len(tests)) for number in range(shards)]:
                shard.result()

    def work_off(self, number: int, batches: list[list[str]], planned: int) -> None:
        """One shard: takes batches until there is none."""
        while True:
            with self.lock:
                if not batches:
                    return
                batch = batches.pop(0)
            self.run_batch(number, self.direct, [t for t in batch if self.options.direct or t not in self.direct.results])
            self.run_batch(number, self.through, [test for test in batch if self.direct.passed(test)])
            with self.lock:
                self.finished += len(batch)
                self.keep()
                print(
                    f"{time.strftime('%H:%M:%S')} {self.suite.name} {self.finished} of {planned};",
                    f"direct {self.direct.counted()}; through Weir {self.through.counted()}",
                    flush=True,
                )

    def keep(self) -> None:
        for way in (self.direct, self.through):
            store(self.work / f"{way.name}.json", self.suite.version, way.results)

    def stage(self, number: int, way: Way) -> Stage:
        network, _, host = self.options.address.rpartition(".")
        directory = way.work / f"shard-{number}"
        directory.mkdir(parents=True, exist_ok=True)
        address = f"{network}.{int(host) + number}"
        return Stage(directory, address, self.template, way.weir, self.suite.accounts(), self.suite.weir_settings())

    def run_batch(self, number: int, way: Way, tests: list[str]) -> None:
        stage = self.stage(number, way)
        pending, doubtful = list(tests), []
        try:
            while pending:
                stage.renew()
                results = self.suite.run(stage, pending)
                if not results:
                    results = [Result(pending[0], Outcome.FAIL, "the suite has told nothing about this test")]
                for position, result in enumerate(results):
                    with self.lock:
                        way.take(result)
                    # Direct, the first test on a fresh server has had its fair try.
                    if result.outcome is Outcome.FAIL and (way.weir or (position > 0 and self.suite.alone_direct)):
                        doubtful.append(result.test)
                finished = {result.test for result in results}
                pending = [test for test in pending if test not in finished]
            for test in doubtful:
                self.try_alone(stage, way, test)
        finally:
            stage.end(kill=True)

    def try_alone(self, stage: Stage, way: Way, test: str) -> None:
        """A test may fail for what another one has left behind, or by chance."""
        for _ in range(TRIES_ALONE if way.weir else 1):
            if TIMED_OUT in way.results[test].output and not way.weir:
                return
            stage.renew()
            results = [result for result in self.suite.run(stage, [test]) if result.test == test]
            for result in results:
                with self.lock:
                    way.take(result)
                if result.outcome is not Outcome.FAIL:
                    return


def load(path: Path, version: str) -> dict[str, Result]:
    """Results of an earlier run of the same version."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if kept["version"] != version:
        return {}
    return {test: Result(test, Outcome(row[0]), row[1]) for test, row in kept["results"].items()}


def store(path: Path, version: str, results: dict[str, Result]) -> None:
    rows = {test: [result.outcome.value, result.output] for test, result in sorted(results.items())}
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"version": version, "results": rows}, indent=0))
    new.rename(path)


def run_suite(suite: Suite, options: argparse.Namespace, weir: Path) -> differences.Comparison:
    """Runs what is asked for, adds it to what is kept of earlier runs, and compares the whole."""
    work = options.work / suite.name
    work.mkdir(parents=True, exist_ok=True)
    print(f"{suite.name}: {suite.title}", flush=True)
    suite.prepare()
    run = Run(suite, options, work, weir)
    tests = differences.chosen(run.tests(), options.only)
    if options.rerun:
        differing = differences.compare(suite, run.direct.results, run.through.results).differing()
        tests = [test for test in tests if test in differing]
    asked = tests
    if options.resume:
        told = run.through.results
        tests = [t for t in tests if t not in run.direct.results or (run.direct.passed(t) and t not in told)]
    run.execute(tests)
    return differences.compare(suite, {test: run.direct.results[test] for test in asked}, run.through.results)


def interrupted(*_: object) -> None:
    """Ends the servers and leaves at once: tests that run notice that they are alone."""
    kill_all()
    os._exit(130)


def main() -> int:
    options = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    if options.list:
        for suite in SUITES.values():
            print(f"{suite.name:16} {suite.title}")
        return 0
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        print(f"no suite {unknown[0]}: one of {', '.join(SUITES)}", file=sys.stderr)
        return 2
    status = 0
    try:
        weir = weir_binary()
        for name in options.suites or SUITES:
            comparison = run_suite(SUITES[name], options, weir)
            report = options.work / name / "report.md"
            report.write_text(comparison.markdown())
            print(comparison.summary(), f"\ntable: {report}", sep="", flush=True)
            status = max(status, 1 if comparison.new() else 0)
    except Failure as failure:
        print(f"suites: {failure}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
