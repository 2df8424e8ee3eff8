"""Four drivers behind one face: what the scenarios need, each in the way that the driver's users write it."""

import datetime
import os


class Skip(Exception):
    """The driver can't do it."""


class Driver:
    """How to reach Weir, and what the drivers differ in."""

    name = ""
    has_prepared = False
    # Columns of the scenarios that the driver gets wrong when they come from a prepared statement.
    misread = ()

    def __init__(self):
        self.host = os.environ["WEIR_HOST"]
        self.port = int(os.environ["WEIR_PORT"])
        self.ca = os.environ["WEIR_CA"]
        self.schema = os.environ["WEIR_SCHEMA"]
        # "mariadb" or "mysql"
        self.server = os.environ["WEIR_SERVER"]
        self.user = self.password = "app"
        self.other_user = "app2"

    def connect(self, **options):
        """A session. Options: user, password, database, charset, tls, autocommit, found_rows, local_infile, multi."""
        raise NotImplementedError

    def several(self, connection, sql):
        """All results of a text, as lists of rows; None for one without rows."""
        results = []
        cursor = connection.cursor()
        cursor.execute(sql)
        while True:
            results.append(list(cursor.fetchall()) if cursor.description else None)
            if not cursor.nextset():
                break
        cursor.close()
        return results

    def warning_count(self, connection, cursor):
        """The number of warnings that the statement's packet told."""
        return cursor.warning_count

    def prepared(self, connection, sql, *rows):
        """Prepares a statement once and executes it with each of the rows; the results' rows."""
        raise Skip("has no prepared statements")

    def bindable(self, value):
        """The parameter of a prepared statement that means this value."""
        return value

    def stream(self, connection, sql):
        """The rows of a result one by one, as they come."""
        raise NotImplementedError

    def change_user(self, connection, user, password, database):
        raise Skip("has no COM_CHANGE_USER")

    def reset(self, connection):
        raise Skip("has no COM_RESET_CONNECTION")

    def ping(self, connection):
        connection.ping()

    def connection_id(self, connection):
        return connection.thread_id()


class PyMysql(Driver):
    name = "pymysql"

    def __init__(self):
        super().__init__()
        import pymysql

        self.module = pymysql

    def connect(self, tls=False, found_rows=False, multi=False, **options):
        from pymysql.constants import CLIENT

        flags = (CLIENT.FOUND_ROWS if found_rows else 0) | (CLIENT.MULTI_STATEMENTS if multi else 0)
        settings = dict(host=self.host, port=self.port, user=self.user, password=self.password,
                        database=self.schema, charset="utf8mb4", client_flag=flags, max_allowed_packet=64 << 20)
        if tls:
            settings.update(ssl_ca=self.ca, ssl_verify_cert=True)
        return self.module.connect(**(settings | options))

    def stream(self, connection, sql):
        cursor = connection.cursor(self.module.cursors.SSCursor)
        cursor.execute(sql)
        yield from cursor
        cursor.close()

    def ping(self, connection):
        connection.ping(reconnect=False)


class Connector(Driver):
    has_prepared = True
    pure = True

    def __init__(self):
        super().__init__()
        import mysql.connector

        self.module = mysql.connector

    def connect(self, tls=False, found_rows=False, multi=False, local_infile=False, **options):
        from mysql.connector.constants import ClientFlag

        # The driver sets FOUND_ROWS by default.
        flags = [ClientFlag.FOUND_ROWS if found_rows else -ClientFlag.FOUND_ROWS]
        settings = dict(host=self.host, port=self.port, user=self.user, password=self.password,
                        database=self.schema, charset="utf8mb4", use_pure=self.pure, client_flags=flags,
                        collation="utf8mb4_general_ci", allow_local_infile=local_infile, ssl_disabled=not tls)
        if tls:
            settings.update(ssl_ca=self.ca, ssl_verify_cert=True)
        if options.get("charset"):
            del settings["collation"]
        return self.module.connect(**(settings | options))

    def prepared(self, connection, sql, *rows):
        cursor = connection.cursor(prepared=True)
        results = []
        for row in rows:
            cursor.execute(sql, row)
            results.append(list(cursor.fetchall()) if cursor.description else None)
        cursor.close()
        return results

    def stream(self, connection, sql):
        cursor = connection.cursor(buffered=False)
        cursor.execute(sql)
        yield from cursor
        cursor.close()

    def change_user(self, connection, user, password, database):
        connection.cmd_change_user(username=user, password=password, database=database)

    def reset(self, connection):
        connection.cmd_reset_connection()

    def ping(self, connection):
        connection.ping(reconnect=False)

    def connection_id(self, connection):
        return connection.connection_id


class ConnectorPure(Connector):
    name = "mysql-connector-pure"


class ConnectorC(Connector):
    name = "mysql-connector-c"
    pure = False
    # It reads unsigned integers as signed ones.
    misread = ("big_u",)

    def bindable(self, value):
        # It can't send integers beyond 63 bits, and sends TIME and DOUBLE wrong (9.7.0).
        is_wrong = isinstance(value, (float, datetime.timedelta)) or isinstance(value, int) and value >= 2**63
        return str(value) if is_wrong else value


class MysqlClient(Driver):
    name = "mysqlclient"

    def __init__(self):
        super().__init__()
        import MySQLdb
        import MySQLdb.cursors

        self.module = MySQLdb

    def connect(self, tls=False, found_rows=False, multi=False, autocommit=False, **options):
        from MySQLdb.constants import CLIENT

        flags = (CLIENT.FOUND_ROWS if found_rows else 0) | (CLIENT.MULTI_STATEMENTS if multi else 0)
        settings = dict(host=self.host, port=self.port, user=self.user, passwd=self.password, db=self.schema,
                        charset="utf8mb4", use_unicode=True, client_flag=flags)
        if "password" in options:
            options["passwd"] = options.pop("password")
        if "database" in options:
            options["db"] = options.pop("database")
        if options.pop("local_infile", False):
            settings["local_infile"] = 1
        if tls:
            settings["ssl"] = {"ca": self.ca}
        connection = self.module.connect(**(settings | options))
        connection.autocommit(autocommit)
        return connection

    def warning_count(self, connection, cursor):
        return connection.warning_count()

    def stream(self, connection, sql):
        cursor = connection.cursor(self.module.cursors.SSCursor)
        cursor.execute(sql)
        yield from cursor
        cursor.close()

    def change_user(self, connection, user, password, database):
        connection.change_user(user, password, database)


DRIVERS = {driver.name: driver for driver in (PyMysql, ConnectorPure, ConnectorC, MysqlClient)}
