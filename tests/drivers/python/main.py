"""main.py DRIVER [SCENARIO...]: puts a driver through the scenarios of ../scenarios.txt, or some of them.

WEIR_HOST, WEIR_PORT    where Weir listens
WEIR_CA                 the certificate that its own one is verified with
WEIR_SCHEMA             a schema to work in
WEIR_SERVER             mariadb or mysql
WEIR_TRACE=1            shows where a scenario failed
"""

import pathlib
import sys

import scenarios
from drivers import DRIVERS


def main():
    driver, *names = sys.argv[1:]
    if not names:
        text = (pathlib.Path(__file__).parent.parent / "scenarios.txt").read_text()
        names = [line for line in text.splitlines() if line and not line.startswith("#")]
    sys.exit(0 if scenarios.run(DRIVERS[driver](), names) else 1)


main()
