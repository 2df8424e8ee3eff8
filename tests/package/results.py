"""Counts checks, and tells how each ended."""

import os
import sys
import time
import traceback
from collections.abc import Callable


class Failed(Exception):
    """What a check found."""


def ensure(condition: object, message: str) -> None:
    if not condition:
        raise Failed(message)


class Results:
    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []

    def run(self, name: str, check: Callable[[], None]) -> bool:
        """Runs a check; whether it passed."""
        began = time.monotonic()
        try:
            check()
        except Exception as error:  # Whatever goes wrong is the check's failure, and the others go on.
            self.failed.append(name)
            print(f"FAILED {name}: {error}", flush=True)
            if not isinstance(error, Failed):
                traceback.print_exc(limit=-3, file=sys.stdout)
            return False
        self.passed += 1
        print(f"ok     {name} ({time.monotonic() - began:.1f} s)", flush=True)
        return True

    def run_in_order(
        self, kind: str, checks: list[tuple[str, Callable[[], None]]], journal: Callable[[], str]
    ) -> None:
        """Runs checks that build on each other: behind one that fails the rest has failed, too."""
        for at, (name, check) in enumerate(checks):
            if not self.run(f"{kind}: {name}", check):
                print(journal())
                rest = [f"{kind}: {name}" for name, _ in checks[at + 1 :]]
                self.failed += rest
                for name in rest:
                    print(f"FAILED {name}: not run", flush=True)
                return

    def end(self) -> int:
        print(f"{self.passed} passed, {len(self.failed)} failed")
        return 1 if self.failed or not self.passed else 0


def not_run(what: str, why: str) -> None:
    """Says what is not tested on this machine, also in the list at the end of `make test`."""
    line = f"{what}: {' '.join(why.split())}"
    print(f"not run: {line}", flush=True)
    if listed := os.environ.get("WEIR_NOT_RUN"):
        with open(listed, "a") as file:
            file.write(line + "\n")
