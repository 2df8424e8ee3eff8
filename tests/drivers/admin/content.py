"""content.py DRIVER HOST PORT: one driver at Weir's admin port. Prints nothing and exits with 0 if it is content."""

import sys


def connect(driver, host, port, **more):
    login = {"host": host, "port": port, "user": "admin", "password": "admin", **more}
    if driver == "pymysql":
        import pymysql

        return pymysql.connect(**login)
    if driver.startswith("mysql-connector"):
        import mysql.connector

        return mysql.connector.connect(**login, use_pure=driver.endswith("pure"))
    import MySQLdb

    return MySQLdb.connect(**login)


def rows(connection, sql, parameters=None):
    cursor = connection.cursor()
    cursor.execute(sql, parameters)
    found = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    cursor.close()
    return found


def expect(found, wanted):
    assert found == wanted, f"{found!r} in place of {wanted!r}"


def main():
    driver, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    connection = connect(driver, host, port)
    expect(rows(connection, "SELECT 1"), [("1",)])
    rows(connection, "DELETE FROM mysql_users WHERE username LIKE 'driver%'")
    insert = "INSERT INTO mysql_users (username, password, comment) VALUES (%s, %s, %s)"
    # What people and patterns are made of: quotes are doubled, backslashes stay.
    # (mysql-connector doubles backslashes whatever the server says.)
    comment = "its ☃" if driver.startswith("mysql-connector") else "it's \\d ☃"
    rows(connection, insert, ("driver1", "secret", comment))
    connection.commit()
    query = "SELECT username, comment FROM mysql_users WHERE username = %s"
    expect(rows(connection, query, ("driver1",)), [("driver1", comment)])
    expect(rows(connection, "SELECT NULL, 'x' AS y"), [(None, "x")])
    assert len(rows(connection, "SHOW TABLES")) > 20
    assert rows(connection, "SHOW VARIABLES LIKE 'mysql-%'")
    assert rows(connection, "SHOW CREATE TABLE mysql_servers")
    if driver.startswith("mysql-connector"):
        cursor = connection.cursor(prepared=True)
        cursor.execute("SELECT comment, ? FROM mysql_users WHERE username = ?", (5, "driver1"))
        expect([tuple(row) for row in cursor.fetchall()], [(comment, "5")])
        cursor.execute("SHOW MYSQL USERS")
        assert cursor.fetchall()
        cursor.close()
    try:
        rows(connection, "LOAD MYSQL USER TO RUNTIME")
    except Exception as error:
        assert "LOAD MYSQL USERS TO RUNTIME" in str(error), error
    else:
        raise AssertionError("a command that is none was taken")
    connection.close()
    other = connect(driver, host, port, database="stats")
    expect(rows(other, "SELECT DATABASE()"), [("stats",)])
    other.close()


main()
