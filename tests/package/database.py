"""Starts a MariaDB server in a machine, with the accounts of a monitor and of an application."""

from machine import Machine

PORT = 3306
SETUP = """
CREATE DATABASE shop;
CREATE TABLE shop.orders (id INT PRIMARY KEY, item VARCHAR(20));
INSERT INTO shop.orders VALUES (1, 'a table');
CREATE USER monitor@'127.%' IDENTIFIED BY 'm0nitor';
CREATE USER app@'127.%' IDENTIFIED BY 's3cret';
GRANT SELECT, INSERT ON shop.* TO app@'127.%';
"""
# How a client asks for the row, behind its address.
QUERY = "-uapp -ps3cret -N -e 'SELECT item FROM shop.orders WHERE id = 1'"
ANSWER = "a table"


def start(machine: Machine) -> None:
    folder = "/var/tmp/database"
    machine.run(
        f"mkdir {folder} && chown mysql {folder} && mariadb-install-db --no-defaults --user=mysql --skip-test-db "
        f"--datadir={folder} --innodb-log-file-size=8M --auth-root-authentication-method=normal >{folder}.log 2>&1"
    )
    machine.start(
        ["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={folder}", f"--socket={folder}/s", f"--port={PORT}"]
        + ["--bind-address=127.0.0.1", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M"]
    )
    client = f"mariadb --no-defaults -uroot --socket={folder}/s"
    machine.eventually(f"{client} -e 'DO 1'")
    machine.path("/var/tmp/setup.sql").write_text(SETUP)
    machine.run(f"{client} </var/tmp/setup.sql")


def configuration(hostname: str, interfaces: str) -> str:
    """A weir.toml in front of the server, by a name that leads to it."""
    return f"""
[mysql_variables]
interfaces = "{interfaces}"
monitor_username = "monitor"
monitor_password = "m0nitor"

[[mysql_servers]]
hostgroup_id = 1
hostname = "{hostname}"
port = {PORT}

[[mysql_users]]
username = "app"
password = "s3cret"
default_hostgroup = 1
"""
