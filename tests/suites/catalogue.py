"""The suites that `scripts/suites` knows."""

from __future__ import annotations

import os
from pathlib import Path

from client_library import ClientLibrary
from connector_j import ConnectorJ
from django_suite import Django
from go_driver import GoDriver
from model import Suite
from python_suites import Aiomysql, ConnectorPython, SqlAlchemy
from regression import Regression

CACHE = Path("/var/tmp/weir-cache" if os.geteuid() == 0 else f"/var/tmp/weir-cache-{os.geteuid()}") / "suites"

_SQLALCHEMY = ("SQLAlchemy==2.0.44", "PyMySQL==1.1.1", "cryptography")
_AIOMYSQL = ("aiomysql==0.3.2", "PyMySQL==1.1.2", "SQLAlchemy==1.3.24", "uvloop==0.22.1", "cryptography")
# setuptools: its tests import the archive's build tools.
_CONNECTOR_PYTHON = ("mysql-connector-python==9.7.0", "setuptools==80.9.0")
_DJANGO = ("Django==5.2.19", "mysqlclient==2.2.7", "tzdata")
_ALL: list[Suite] = [
    Regression("mariadb", "MariaDB's regression suite, main, text protocol", CACHE),
    Regression("mariadb-ps", "MariaDB's regression suite, main, --ps-protocol", CACHE, ("--ps-protocol",)),
    ClientLibrary("mariadb-client", "the server's tests of its C API (mariadb-client-test)", CACHE),
    SqlAlchemy("sqlalchemy", "SQLAlchemy's suite for dialects, by PyMySQL", CACHE, _SQLALCHEMY),
    Django("django", "Django's tests of databases, by mysqlclient", CACHE, _DJANGO),
    Aiomysql("aiomysql", "aiomysql's tests, with asyncio and uvloop", CACHE, _AIOMYSQL),
    ConnectorPython("connector-python", "MySQL Connector/Python's tests", CACHE, _CONNECTOR_PYTHON),
    ConnectorJ("connector-j", "MariaDB Connector/J's tests", CACHE),
    GoDriver("go", "go-sql-driver/mysql's tests", CACHE),
]
SUITES: dict[str, Suite] = {suite.name: suite for suite in _ALL}
