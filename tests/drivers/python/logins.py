"""logins.py [DRIVER...]: logs in with each driver as each user that standard input names, with and without TLS.

A line of input is "USER PASSWORD"; "-" stands for no password. A line of output is "DRIVER USER PASSWORD TLS OUTCOME": the
account that the server says that one is, the number of an error, or the class of an error that the driver makes itself.
WEIR_HOST, WEIR_PORT, WEIR_CA, WEIR_SERVER as for main.py.
"""

import os
import sys

os.environ.setdefault("WEIR_SCHEMA", "test")

from drivers import DRIVERS  # noqa: E402


def outcome(driver, user, password, tls):
    try:
        connection = driver.connect(user=user, password=password, database="information_schema", tls=tls)
    except Exception as error:
        # Drivers raise what they like; all have the server's number first if there is one.
        number = getattr(error, "errno", None) or (error.args[0] if error.args else None)
        return str(number) if isinstance(number, int) and number > 0 else type(error).__name__
    try:
        cursor = connection.cursor()
        cursor.execute("SELECT CURRENT_USER()")
        return cursor.fetchone()[0]
    except Exception as error:
        return f"in, but {error}"
    finally:
        connection.close()


def main():
    accounts = [line.split() for line in sys.stdin.read().splitlines() if line]
    for name in sys.argv[1:] or list(DRIVERS):
        driver = DRIVERS[name]()
        for user, password in accounts:
            for tls in (False, True):
                told = outcome(driver, user, "" if password == "-" else password, tls)
                print(name, user, password, "tls" if tls else "plain", told, flush=True)


main()
