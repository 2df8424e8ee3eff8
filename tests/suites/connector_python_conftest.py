"""conftest.py for the tests of MySQL Connector/Python: tells them about a server that runs already, as their own unittests.py does."""

import os
import re

import mysql.connector
import tests
from tests import mysqld

_config = {
    "host": os.environ["WEIR_SUITES_HOST"],
    "port": int(os.environ["WEIR_SUITES_PORT"]),
    "user": "root",
    "password": "",
    "connection_timeout": 60,
    # MariaDB does not know what Connector/Python takes without being told (utf8mb4_0900_ai_ci).
    "charset": "utf8mb4",
    "collation": "utf8mb4_general_ci",
}
_server = mysqld.MySQLExternalServer("", "server1")
_server.client_config = {**_config, "database": "myconnpy", "unix_socket": None}
_server.xplugin_config = {}
with mysql.connector.connect(**_config, use_pure=True) as _connection:
    with _connection.cursor() as _cursor:
        _cursor.execute("SELECT VERSION(), @@license, @@socket")
        _version, _server.license, _server.unix_socket = _cursor.fetchone()
_server.version = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)\.(\d+)", _version).groups())
tests.OPTIONS_INIT = True
tests.IPV6_AVAILABLE = False
tests.MYSQL_EXTERNAL_SERVER = True
tests.MYSQL_SERVERS.append(_server)
tests.MYSQL_VERSION = _server.version
tests.MYSQL_LICENSE = _server.license
tests.MYSQL_VERSION_TXT = ".".join(map(str, _server.version))
