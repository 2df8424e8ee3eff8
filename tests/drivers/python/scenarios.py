"""The scenarios of scenarios.txt for drivers with Python's database interface (PEP 249). Each raises what is wrong."""

import datetime
import decimal
import os
import tempfile
import threading
import time

from drivers import Skip

DECIMAL = decimal.Decimal
# CR_AUTH_PLUGIN_ERR: a client without TLS that is asked for the password itself, since the proof was wrong.
WRONG_PASSWORD = (1045, 2061)
NO_SUCH_SCHEMA, PARSE_ERROR, DUPLICATE_KEY, NO_SUCH_TABLE = 1049, 1064, 1062, 1146
INTERRUPTED, DIVISION_BY_ZERO, READ_ONLY_TRANSACTION, SIGNALLED, LOCK_TIMEOUT = 1317, 1365, 1792, 1644, 1205
# CR_SERVER_GONE_ERROR, CR_SERVER_LOST, CR_SERVER_LOST_EXTENDED, and 0 or -1: drivers know that the connection is gone.
CONNECTION_LOST = (2006, 2013, 2055, 0, -1)
# 4-byte, combining and right-to-left characters, what SQL quotes, and what LIKE knows.
WORDS = ["é", "e\u0301", "日本語", "👩‍👩‍👧", "שלום", "it's \"quoted\" \\ `this` %s _", "", "\0 zero", "a\nb\tc"]


def equal(got, wanted):
    if got != wanted:
        raise AssertionError(f"expected {shown(wanted)}, got {shown(got)}")


def shown(value):
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."


def rows(connection, sql, *params):
    cursor = connection.cursor()
    cursor.execute(sql, params or None)
    found = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    cursor.close()
    return found


def value(connection, sql, *params):
    ((found,),) = rows(connection, sql, *params)
    return found


def refused(driver, code, action, *args):
    """Runs what must fail with this error number, or one of several."""
    codes = code if isinstance(code, tuple) else (code,)
    try:
        action(*args)
    except Exception as error:  # Not only the driver's Error: its C part raises others, too.
        got = getattr(error, "errno", error.args[0] if error.args else 0)
        if got not in codes:
            raise AssertionError(f"expected error {code}, got {error!r}") from error
        return error
    raise AssertionError(f"expected error {code}, but it worked")


def seen(connection, sql, wanted):
    """Waits for what another session has written: Weir's readers show that some milliseconds later."""
    deadline = time.monotonic() + 5
    while True:
        try:
            got = value(connection, sql)
        except Exception:  # The table is not there yet.
            got = None
        if got == wanted or time.monotonic() > deadline:
            return equal(got, wanted)
        time.sleep(0.01)


def table(connection, name, columns):
    rows(connection, f"DROP TABLE IF EXISTS {name}")
    rows(connection, f"CREATE TABLE {name} ({columns})")


def connect(driver):
    connection = driver.connect()
    equal(value(connection, "SELECT DATABASE()"), driver.schema)
    equal(value(connection, "SELECT CURRENT_USER()"), "app@%")
    equal(value(connection, "SELECT CONNECTION_ID()"), driver.connection_id(connection))
    connection.close()


def connect_tls(driver):
    connection = driver.connect(tls=True)
    equal(value(connection, "SELECT REPEAT('x', 100000)"), "x" * 100000)
    connection.close()


def wrong_password(driver):
    refused(driver, WRONG_PASSWORD, lambda: driver.connect(password="wrong"))


def unknown_schema(driver):
    def use():
        # Some servers and proxies tell at the login, others at the first statement.
        rows(driver.connect(database="nowhere_at_all"), "SELECT 1")

    refused(driver, NO_SUCH_SCHEMA, use)


def characters(driver):
    connection = driver.connect(autocommit=True)
    table(connection, "words", "id INT PRIMARY KEY, word VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    for at, word in enumerate(WORDS):
        rows(connection, "INSERT INTO words VALUES (%s, %s)", at, word)
    equal([word for (word,) in rows(connection, "SELECT word FROM words ORDER BY id")], WORDS)
    equal(value(connection, "SELECT id FROM words WHERE word = %s", "日本語"), 2)
    equal(value(connection, "SELECT HEX(word) FROM words WHERE id = 3"), WORDS[3].encode().hex().upper())
    connection.close()


def latin1(driver):
    connection = driver.connect(charset="latin1")
    equal(value(connection, "SELECT @@character_set_client"), "latin1")
    equal(value(connection, "SELECT HEX(%s)", "é"), "E9")
    equal(value(connection, "SELECT _latin1 0xE9"), "é")
    connection.close()


def autocommit(driver):
    connection, other = driver.connect(), driver.connect(autocommit=True)
    table(other, "auto", "id INT PRIMARY KEY")
    # PEP 249: a session begins without autocommit.
    rows(connection, "INSERT INTO auto VALUES (1)")
    seen(other, "SELECT COUNT(*) FROM auto", 0)
    connection.commit()
    seen(other, "SELECT COUNT(*) FROM auto", 1)
    equal(value(other, "SELECT @@autocommit"), 1)
    equal(value(connection, "SELECT @@autocommit"), 0)
    connection.rollback()
    connection.close(), other.close()


def transactions(driver):
    connection, other = driver.connect(autocommit=True), driver.connect(autocommit=True)
    table(connection, "accounts", "id INT PRIMARY KEY, amount INT")
    rows(connection, "INSERT INTO accounts VALUES (1, 10), (2, 20)")
    rows(connection, "START TRANSACTION")
    rows(connection, "UPDATE accounts SET amount = amount - 5 WHERE id = 1")
    equal(value(connection, "SELECT amount FROM accounts WHERE id = 1"), 5)
    seen(other, "SELECT amount FROM accounts WHERE id = 1", 10)
    rows(connection, "SAVEPOINT here")
    rows(connection, "UPDATE accounts SET amount = 0")
    rows(connection, "ROLLBACK TO here")
    refused(driver, DUPLICATE_KEY, rows, connection, "INSERT INTO accounts VALUES (2, 0)")
    equal(value(connection, "SELECT SUM(amount) FROM accounts"), 25)
    connection.commit()
    seen(other, "SELECT amount FROM accounts WHERE id = 1", 5)
    rows(connection, "BEGIN")
    rows(connection, "DELETE FROM accounts")
    connection.rollback()
    equal(value(connection, "SELECT COUNT(*) FROM accounts"), 2)
    connection.close(), other.close()


def read_only_transaction(driver):
    connection = driver.connect(autocommit=True)
    table(connection, "looked_at", "id INT PRIMARY KEY")
    rows(connection, "INSERT INTO looked_at VALUES (1)")
    rows(connection, "START TRANSACTION READ ONLY")
    equal(value(connection, "SELECT COUNT(*) FROM looked_at"), 1)
    refused(driver, READ_ONLY_TRANSACTION, rows, connection, "INSERT INTO looked_at VALUES (2)")
    connection.commit()
    rows(connection, "INSERT INTO looked_at VALUES (2)")
    equal(value(connection, "SELECT COUNT(*) FROM looked_at"), 2)
    connection.close()


TYPES = [
    ("tiny", "TINYINT", -128), ("small_u", "SMALLINT UNSIGNED", 65535), ("medium", "MEDIUMINT", -8388608),
    ("whole", "INT", -2147483648), ("big", "BIGINT", -(2**63)), ("big_u", "BIGINT UNSIGNED", 2**64 - 1),
    ("exact", "DECIMAL(30,10)", DECIMAL("-12345678901234567890.0123456789")), ("half", "DOUBLE", -1.5e300),
    ("single_", "FLOAT", 0.25), ("day", "DATE", datetime.date(2026, 2, 28)),
    ("moment", "DATETIME(6)", datetime.datetime(2026, 12, 31, 23, 59, 59, 999999)),
    ("stamp", "TIMESTAMP", datetime.datetime(2001, 2, 3, 4, 5, 6)),
    ("span", "TIME", datetime.timedelta(hours=20, minutes=1, seconds=2)),
    ("words", "VARCHAR(50) CHARACTER SET utf8mb4", "naïve 👍"), ("long_words", "TEXT", "x" * 5000), ("bytes_", "VARBINARY(50)", b"\0\xff'\\"),
    ("blob_", "BLOB", bytes(range(256)) * 10), ("choice", "ENUM('a','b')", "b"), ("nothing", "INT", None),
]


def make_types(driver, connection):
    columns = ", ".join(f"{name} {kind} NULL" for name, kind, _ in TYPES)
    table(connection, "kinds", f"id INT PRIMARY KEY, {columns}")
    return ", ".join(name for name, _, _ in TYPES), ", ".join(["%s"] * len(TYPES)), tuple(v for _, _, v in TYPES)


def natural(row):
    """Without what drivers are free to choose: bytes of any class, and text for them."""
    return tuple(bytes(v) if isinstance(v, (bytearray, memoryview)) else v for v in row)


def types(driver):
    connection = driver.connect(autocommit=True)
    names, places, values = make_types(driver, connection)
    rows(connection, f"INSERT INTO kinds (id, {names}) VALUES (1, {places})", *values)
    rows(connection, "INSERT INTO kinds (id) VALUES (2)")
    equal(natural(rows(connection, f"SELECT {names} FROM kinds WHERE id = 1")[0]), values)
    equal(rows(connection, f"SELECT {names} FROM kinds WHERE id = 2")[0], (None,) * len(values))
    connection.close()


def prepared_types(driver):
    connection = driver.connect(autocommit=True)
    names, places, values = make_types(driver, connection)
    nulls = (None,) * len(values)
    driver.prepared(connection, f"INSERT INTO kinds (id, {names}) VALUES (%s, {places})", (1, *map(driver.bindable, values)), (2, *nulls))
    found = driver.prepared(connection, f"SELECT {names} FROM kinds WHERE id = %s", (1,), (2,), (3,))
    got = found[0][0]
    for (name, _, wanted), one in zip(TYPES, got):
        one = bytes(one) if isinstance(one, (bytearray, memoryview)) else one
        # Some drivers give bytes for text, and text for bytes, of prepared statements.
        one = one.decode() if isinstance(one, bytes) and isinstance(wanted, str) else one
        if one != wanted and name not in driver.misread:
            raise AssertionError(f"{name}: expected {shown(wanted)}, got {shown(one)}")
    equal(tuple(found[1][0]), nulls)
    equal(found[2], [])
    connection.close()


def prepared_again(driver):
    """Many statements, many times, in sessions that share connections."""
    sessions = [driver.connect(autocommit=True) for _ in range(3)]
    table(sessions[0], "numbers", "id INT PRIMARY KEY, word VARCHAR(20)")
    for turn in range(5):
        for at, session in enumerate(sessions):
            ids = [(turn * 100 + at * 10 + n, f"w{n}") for n in range(5)]
            driver.prepared(session, "INSERT INTO numbers VALUES (%s, %s)", *ids)
            found = driver.prepared(session, "SELECT word FROM numbers WHERE id = %s", *[(i,) for i, _ in ids])
            equal([[tuple(row) for row in result] for result in found], [[(word,)] for _, word in ids])
            equal(driver.prepared(session, f"SELECT {turn} + %s", (at,)), [[(turn + at,)]])
    refused(driver, NO_SUCH_TABLE, driver.prepared, sessions[1], "SELECT * FROM nowhere WHERE id = %s", (1,))
    seen(sessions[2], "SELECT COUNT(*) FROM numbers", 75)
    for session in sessions:
        session.close()


def long_data(driver):
    connection = driver.connect(autocommit=True)
    table(connection, "long_ones", "id INT PRIMARY KEY, content LONGBLOB")
    content = bytes(n * 7 % 251 for n in range(1 << 20)) * 3
    if driver.has_prepared:
        driver.prepared(connection, "INSERT INTO long_ones VALUES (%s, %s)", (1, content), (2, b"short"))
    else:
        rows(connection, "INSERT INTO long_ones VALUES (%s, _binary %s), (2, 'short')", 1, content)
    equal(value(connection, "SELECT LENGTH(content) FROM long_ones WHERE id = 1"), len(content))
    equal(bytes(value(connection, "SELECT content FROM long_ones WHERE id = 1")) == content, True)
    equal(bytes(value(connection, "SELECT content FROM long_ones WHERE id = 2")), b"short")
    connection.close()


NUMBERS = "WITH RECURSIVE d (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM d WHERE n < 9) " \
    "SELECT a.n + 10 * b.n + 100 * c.n + 1000 * e.n + 10000 * f.n AS n, REPEAT('y', a.n * 5) FROM d a, d b, d c, d e, d f"


def large_result(driver):
    connection = driver.connect()
    found = rows(connection, NUMBERS)
    equal(len(found), 100000)
    equal(sum(n for n, _ in found), 100000 * 99999 // 2)
    equal(all(word == "y" * (n % 10 * 5) for n, word in found), True)
    connection.close()


def streamed_result(driver):
    connection, other = driver.connect(), driver.connect()
    count = total = 0
    for n, _ in driver.stream(connection, NUMBERS):
        count, total = count + 1, total + n
        if count == 50000:
            equal(value(other, "SELECT 5"), 5)
    equal((count, total), (100000, 100000 * 99999 // 2))
    equal(value(connection, "SELECT 6"), 6)
    connection.close(), other.close()


def large_row(driver):
    """More than one packet of the protocol, which end at 16 MB, in both directions."""
    connection = driver.connect(autocommit=True)
    size = 17 << 20
    equal(len(value(connection, f"SELECT REPEAT('z', {size})")), size)
    text = "a" * size
    equal(value(connection, "SELECT LENGTH(%s)", text), size)
    equal(value(connection, "SELECT 1"), 1)
    connection.close()


def several_statements(driver):
    connection = driver.connect(multi=True, autocommit=True)
    table(connection, "several", "id INT PRIMARY KEY")
    found = driver.several(connection, "INSERT INTO several VALUES (1), (2); SELECT id FROM several ORDER BY id; SELECT 3")
    equal([result and [tuple(row) for row in result] for result in found], [None, [(1,), (2,)], [(3,)]])
    refused(driver, NO_SUCH_TABLE, driver.several, connection, "INSERT INTO several VALUES (3); SELECT * FROM nowhere; SELECT 1")
    equal(value(connection, "SELECT COUNT(*) FROM several"), 3)
    connection.close()


def procedure(driver):
    connection = driver.connect(autocommit=True)
    rows(connection, "DROP PROCEDURE IF EXISTS two_results")
    rows(connection, "CREATE PROCEDURE two_results(IN a INT, OUT b INT) BEGIN SELECT a; SELECT a + 1, 'two'; SET b = a * 2; END")
    found = driver.several(connection, "CALL two_results(20, @b)")
    equal([tuple(result[0]) for result in found if result], [(20,), (21, "two")])
    equal(int(value(connection, "SELECT @b")), 40)
    cursor = connection.cursor()
    cursor.callproc("two_results", (7, 0))
    cursor.close()
    connection.close()


def local_infile(driver):
    connection = driver.connect(local_infile=True, autocommit=True)
    table(connection, "loaded", "id INT PRIMARY KEY, word VARCHAR(50)")
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for n in range(50000):
            file.write(f"{n}\tword {n}\n")
        file.flush()
        rows(connection, f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE loaded")
    equal(rows(connection, "SELECT COUNT(*), MAX(id) FROM loaded"), [(50000, 49999)])
    equal(value(connection, "SELECT word FROM loaded WHERE id = 777"), "word 777")
    connection.close()


def warnings(driver):
    connection, other = driver.connect(autocommit=True), driver.connect(autocommit=True)
    cursor = connection.cursor()
    cursor.execute("SELECT CAST('1x' AS SIGNED), 1/0")
    cursor.fetchall()
    count = driver.warning_count(connection, cursor)
    for n in range(5):
        equal(value(other, f"SELECT {n}"), n)
    found = rows(connection, "SHOW WARNINGS")
    equal([code for _, code, _ in found], [1292, DIVISION_BY_ZERO])
    equal(count, 2)
    cursor.close()
    rows(connection, "DROP TABLE IF EXISTS was_never_there")
    equal([code for _, code, _ in rows(connection, "SHOW WARNINGS")], [1051])
    equal(rows(other, "SHOW WARNINGS"), [])
    connection.close(), other.close()


def error_codes(driver):
    connection = driver.connect(autocommit=True)
    table(connection, "faulty", "id INT PRIMARY KEY, n INT NOT NULL")
    rows(connection, "INSERT INTO faulty VALUES (1, 1)")
    for code, sql in [
        (DUPLICATE_KEY, "INSERT INTO faulty VALUES (1, 2)"), (NO_SUCH_TABLE, "SELECT * FROM nowhere"),
        (PARSE_ERROR, "SELEC 1"), (1048, "INSERT INTO faulty VALUES (2, NULL)"), (1054, "SELECT nothing FROM faulty"),
        (SIGNALLED, "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'grün'"), (1305, "CALL no_such_procedure()"),
    ]:
        refused(driver, code, rows, connection, sql)
        equal(value(connection, "SELECT COUNT(*) FROM faulty"), 1)
    error = refused(driver, DUPLICATE_KEY, rows, connection, "INSERT INTO faulty VALUES (1, 2)")
    equal(isinstance(error, driver.module.IntegrityError), True)
    connection.close()


def insert_id(driver):
    connection, other = driver.connect(autocommit=True), driver.connect(autocommit=True)
    table(connection, "numbered", "id INT PRIMARY KEY AUTO_INCREMENT, n INT")
    cursor = connection.cursor()
    cursor.execute("INSERT INTO numbered (n) VALUES (1)")
    first = cursor.lastrowid
    cursor.execute("INSERT INTO numbered (n) VALUES (2), (3)")
    second = cursor.lastrowid
    cursor.close()
    rows(other, "INSERT INTO numbered (n) VALUES (4)")
    equal(second > first > 0, True)
    equal(value(connection, "SELECT LAST_INSERT_ID()"), second)
    equal(value(connection, "SELECT n FROM numbered WHERE id = LAST_INSERT_ID()"), 2)
    equal(value(other, "SELECT n FROM numbered WHERE id = LAST_INSERT_ID()"), 4)
    connection.close(), other.close()


def affected_by(connection, sql):
    cursor = connection.cursor()
    cursor.execute(sql)
    count = cursor.rowcount
    cursor.close()
    return count


def affected_rows(driver):
    connection = driver.connect(autocommit=True)
    table(connection, "counted", "id INT PRIMARY KEY, n INT")
    equal(affected_by(connection, "INSERT INTO counted VALUES (1, 1), (2, 1), (3, 1)"), 3)
    equal(affected_by(connection, "UPDATE counted SET n = 1"), 0)
    equal(affected_by(connection, "UPDATE counted SET n = 2 WHERE id < 3"), 2)
    equal(affected_by(connection, "REPLACE INTO counted VALUES (1, 5)"), 2)
    equal(affected_by(connection, "DELETE FROM counted"), 3)
    connection.close()


def found_rows(driver):
    connection, other = driver.connect(found_rows=True, autocommit=True), driver.connect(autocommit=True)
    table(connection, "matched", "id INT PRIMARY KEY, n INT")
    rows(connection, "INSERT INTO matched VALUES (1, 1), (2, 1)")
    for _ in range(3):
        equal(affected_by(connection, "UPDATE matched SET n = 1"), 2)
        equal(affected_by(other, "UPDATE matched SET n = 1"), 0)
    equal(len(rows(connection, "SELECT SQL_CALC_FOUND_ROWS id FROM matched LIMIT 1")), 1)
    equal(value(other, "SELECT 1"), 1)
    equal(value(connection, "SELECT FOUND_ROWS()"), 2)
    connection.close(), other.close()


def session_variables(driver):
    connection, other = driver.connect(autocommit=True), driver.connect(autocommit=True)
    before = value(other, "SELECT @@time_zone")
    rows(connection, "SET time_zone = '+05:00', sql_mode = 'ANSI_QUOTES', group_concat_max_len = 2000")
    for _ in range(5):
        equal(rows(connection, "SELECT @@time_zone, @@sql_mode, @@group_concat_max_len"), [("+05:00", "ANSI_QUOTES", 2000)])
        equal(value(other, "SELECT @@time_zone"), before)
        equal(value(other, 'SELECT "text"'), "text")
    rows(connection, "SET foreign_key_checks = 0, unique_checks = 0")
    equal(rows(connection, "SELECT @@foreign_key_checks, @@unique_checks"), [(0, 0)])
    connection.close()
    equal(rows(other, "SELECT @@foreign_key_checks, @@unique_checks"), [(1, 1)])
    other.close()


def user_variables(driver):
    connection, other = driver.connect(), driver.connect()
    rows(connection, "SET @mine = 'kept'")
    for _ in range(3):
        equal(value(connection, "SELECT @mine"), "kept")
        equal(value(other, "SELECT @mine"), None)
    connection.close(), other.close()


def temporary_table(driver):
    connection, other = driver.connect(autocommit=True), driver.connect(autocommit=True)
    rows(connection, "CREATE TEMPORARY TABLE passing (id INT)")
    rows(connection, "INSERT INTO passing VALUES (1)")
    equal(value(connection, "SELECT COUNT(*) FROM passing"), 1)
    refused(driver, NO_SUCH_TABLE, rows, other, "SELECT COUNT(*) FROM passing")
    connection.close(), other.close()


def named_lock(driver):
    connection, other = driver.connect(), driver.connect()
    lock = f"{driver.schema}_{driver.name}"
    equal(value(connection, "SELECT GET_LOCK(%s, 5)", lock), 1)
    equal(value(other, "SELECT GET_LOCK(%s, 0)", lock), 0)
    equal(value(connection, "SELECT RELEASE_LOCK(%s)", lock), 1)
    equal(value(other, "SELECT GET_LOCK(%s, 5)", lock), 1)
    connection.close(), other.close()


def change_user(driver):
    connection = driver.connect(autocommit=True)
    rows(connection, "SET @mine = 1, time_zone = '+05:00'")
    driver.change_user(connection, driver.other_user, driver.other_user, driver.schema)
    equal(rows(connection, "SELECT CURRENT_USER(), DATABASE(), @mine"), [("app2@%", driver.schema, None)])
    equal(value(connection, "SELECT @@time_zone = @@GLOBAL.time_zone"), 1)
    connection.close()


def reset(driver):
    connection = driver.connect(autocommit=True)
    rows(connection, "SET @mine = 1, time_zone = '+05:00'")
    rows(connection, "CREATE TEMPORARY TABLE passing (id INT)")
    driver.reset(connection)
    equal(rows(connection, "SELECT DATABASE(), @mine, @@time_zone = @@GLOBAL.time_zone"), [(driver.schema, None, 1)])
    refused(driver, NO_SUCH_TABLE, rows, connection, "SELECT COUNT(*) FROM passing")
    connection.close()


def ping(driver):
    connection = driver.connect()
    for _ in range(3):
        driver.ping(connection)
    equal(value(connection, "SELECT 1"), 1)
    connection.close()


def in_background(action):
    """Runs the action in a thread; the returned function waits for it and gives its error."""
    outcome = []

    def work():
        try:
            action()
            outcome.append(None)
        except BaseException as error:  # It is handed over, whatever it is.
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def wait():
        thread.join(30)
        return outcome[0] if outcome else AssertionError("it still runs")

    return wait


def raised(error):
    if error is not None:
        raise error


def wait_for_statement(driver, other, text):
    """Until a server runs the statement; a session at another server sees nothing of it, so only for a while."""
    sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE LEFT(HEX(INFO), %s) = %s"
    for _ in range(20):
        try:
            if value(other, sql, len(text) * 2, text.encode().hex().upper()):
                return
        except Exception as error:
            # MySQL can't show the statement of somebody else that has bytes which are no text.
            if "3854" not in str(error):
                raise
        time.sleep(0.05)


def kill_query(driver):
    connection, other = driver.connect(autocommit=True), driver.connect(autocommit=True)
    id_ = driver.connection_id(connection)
    table(other, "slow", "id INT")
    rows(other, "INSERT INTO slow VALUES (1), (2)")
    # A statement that fails when it is interrupted; a lone SLEEP() would answer 1.
    wait = in_background(lambda: rows(connection, "UPDATE slow SET id = id + SLEEP(20)"))
    wait_for_statement(driver, other, "UPDATE slow")
    rows(other, f"KILL QUERY {id_}")
    refused(driver, INTERRUPTED, lambda: raised(wait()))
    equal(value(connection, "SELECT 1"), 1)
    refused(driver, 1094, rows, other, "KILL QUERY 4000000000")
    connection.close(), other.close()


def kill_connection(driver):
    connection, other = driver.connect(autocommit=True), driver.connect(autocommit=True)
    rows(other, f"KILL {driver.connection_id(connection)}")
    refused(driver, CONNECTION_LOST, rows, connection, "SELECT 1")
    equal(value(other, "SELECT 1"), 1)
    other.close()


def reconnect(driver):
    for n in range(30):
        connection = driver.connect()
        equal(value(connection, f"SELECT {n}"), n)
        connection.close()


def interleaved(driver):
    """Sessions of different minds that share few connections."""
    sessions = [driver.connect(autocommit=True) for _ in range(6)]
    table(sessions[0], "shared", "id INT PRIMARY KEY AUTO_INCREMENT, who INT, n INT")
    zones = [f"+0{at}:00" for at in range(6)]
    for session, zone in zip(sessions, zones):
        rows(session, "SET time_zone = %s", zone)
    for n in range(10):
        for at, session in enumerate(sessions):
            rows(session, "INSERT INTO shared (who, n) VALUES (%s, %s)", at, n)
            equal(rows(session, "SELECT who, n FROM shared WHERE id = LAST_INSERT_ID()"), [(at, n)])
            equal(value(session, "SELECT @@time_zone"), zones[at])
            equal(value(session, "SELECT COUNT(*) FROM shared WHERE who = %s", at), n + 1)
    for session in sessions:
        session.close()


def run(driver, names):
    """Runs the scenarios of these names; returns whether all went well."""
    went_well = True
    for name in names:
        try:
            globals()[name](driver)
            print(f"ok {name}", flush=True)
        except Skip as reason:
            print(f"skip {name}: {reason}", flush=True)
        except Exception as error:
            went_well = False
            print(f"not ok {name}: {type(error).__name__}: {error}", flush=True)
            if os.environ.get("WEIR_TRACE"):
                import traceback

                traceback.print_exc()
    return went_well
