"""Servers for a suite: MariaDB with a fresh data directory, and Weir in front of it.

A `Stage` is one MariaDB, and for runs through Weir one Weir. `Stage.renew()` brings both back to the state of the
first start, in about two seconds: the data directory is a copy of a template.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

MARIADB_PORT = 3306
WEIR_PORT = 6033
ADMIN_PORT = 6032
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
MYSQL_TEST = Path("/usr/share/mysql/mysql-test")
MONITOR = "weir_monitor"
# Below a stage's directory; mysql-test-run's own layout, which some tests write out.
DATA = "var/mysqld.1/data"


# What this runner has started, for when it is interrupted.
RUNNING: list[Program] = []


class Failure(Exception):
    """The runner can't go on; the text is for the user."""


@dataclass(frozen=True)
class Account:
    """An account that a suite logs in with: it is named in Weir's configuration, as any application's is."""

    name: str
    password: str = ""


@dataclass(eq=False)
class Program:
    """A process that this runner has started, and ends."""

    name: str
    command: list[str]
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.env},
                start_new_session=True,
            )
        RUNNING.append(self)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, kill: bool = False) -> None:
        if self in RUNNING:
            RUNNING.remove(self)
        if not self.is_running():
            return
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def fail(self, what: str) -> Failure:
        tail = self.log.read_text(errors="replace").splitlines()[-15:]
        return Failure(f"{self.name} {what}; the end of {self.log}:\n  " + "\n  ".join(tail))


def kill_all() -> None:
    for program in list(RUNNING):
        if program.is_running():
            program.process.kill()


def program_path(name: str) -> str:
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin")
    if path is None:
        raise Failure(f"{name} is not installed: run `make deps`")
    return path


def options_file(settings: str, directory: Path, address: str) -> str:
    """MariaDB's option file. `settings` are the suite's own lines; the suite of the server brings its defaults itself."""
    return f"""[mysqld]
{settings}
datadir={directory}/{DATA}
socket={directory}/mariadb.sock
pid-file={directory}/mariadb.pid
tmpdir={directory}/tmp
bind-address={address}
port={MARIADB_PORT}
user=root
"""


class Template:
    """A data directory as it is before the first test, made once and copied for each start."""

    def __init__(self, directory: Path, settings: str, seed_sql: str, env: dict[str, str]):
        self.directory = directory
        self.settings = settings
        self.seed_sql = seed_sql
        self.env = env

    def make(self, address: str) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        (self.directory / "tmp").mkdir(parents=True)
        (self.directory / DATA).parent.mkdir(parents=True)
        options = self.directory / "my.cnf"
        options.write_text(options_file(self.settings, self.directory, address))
        made = subprocess.run(
            [
                program_path("mariadb-install-db"),
                f"--defaults-file={options}",
                "--auth-root-authentication-method=normal",
                "--skip-name-resolve",
            ],
            capture_output=True,
            text=True,
            env={**os.environ, **self.env},
        )
        if made.returncode != 0:
            raise Failure(f"mariadb-install-db failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")
        server = mariadb_program(self.directory, self.env)
        server.start()
        try:
            wait_for_socket(server, self.directory / "mariadb.sock")
            run_sql(self.directory / "mariadb.sock", self.seed_sql)
        finally:
            server.end()


def mariadb_program(directory: Path, env: dict[str, str]) -> Program:
    command = [program_path("mariadbd"), f"--defaults-file={directory}/my.cnf"]
    return Program("MariaDB", command, directory / "mariadb.log", env)


def wait_for_socket(program: Program, path: Path) -> None:
    """Until a server answers at a Unix socket."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if not program.is_running():
            raise program.fail("has ended at its start")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(START_TIMEOUT_S)
            try:
                client.connect(str(path))
                if client.recv(1):
                    return
            except OSError:
                pass
        time.sleep(0.05)
    raise program.fail(f"has not answered in {START_TIMEOUT_S} s")


def run_sql(path: Path, sql: str, user: str = "root") -> str:
    client = [program_path("mariadb"), "--no-defaults", f"--socket={path}", f"--user={user}", "--batch", "--skip-column-names"]
    done = subprocess.run(client, input=sql, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"SQL failed at {path}: {done.stderr.strip()}\n{sql[:500]}")
    return done.stdout


def quoted(text: str) -> str:
    """A basic string of TOML."""
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in text)
    return f'"{escaped}"'


def weir_configuration(directory: Path, address: str, accounts: list[Account], settings: str) -> str:
    rows = "".join(
        f"\n[[mysql_users]]\nusername = {quoted(account.name)}\npassword = {quoted(account.password)}\ndefault_hostgroup = 0\n"
        for account in accounts
    )
    return f"""datadir = "{directory}/weir"

[admin_variables]
mysql_ifaces = "{address}:{ADMIN_PORT}"

[mysql_variables]
interfaces = "{address}:{WEIR_PORT};{directory}/weir-listener.sock"
monitor_username = "{MONITOR}"
monitor_password = ""
threads = 1
{settings}

[[mysql_servers]]
hostgroup_id = 0
hostname = "{address}"
port = {MARIADB_PORT}
{rows}"""


@dataclass
class Stage:
    """MariaDB at `address`, and with `weir` a Weir in front of it that knows `accounts`."""

    directory: Path
    address: str
    template: Template
    weir: Path | None
    accounts: list[Account]
    weir_settings: str = ""
    programs: list[Program] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        """Where the suite connects."""
        return self.directory / ("weir-listener.sock" if self.weir else "mariadb.sock")

    @property
    def port(self) -> int:
        return WEIR_PORT if self.weir else MARIADB_PORT

    def renew(self) -> None:
        """Both servers as if for the first time."""
        self.end(kill=True)
        for name in ("var", "tmp", "weir"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        (self.directory / "tmp").mkdir(parents=True)
        shutil.copytree(self.template.directory / DATA, self.directory / DATA, symlinks=True)
        (self.directory / "my.cnf").write_text(options_file(self.template.settings, self.directory, self.address))
        server = mariadb_program(self.directory, self.template.env)
        server.start()
        self.programs.append(server)
        wait_for_socket(server, self.directory / "mariadb.sock")
        if self.weir:
            self.start_weir()

    def start_weir(self) -> None:
        configuration = self.directory / "weir.toml"
        configuration.write_text(weir_configuration(self.directory, self.address, self.accounts, self.weir_settings))
        command = [str(self.weir), "serve", "-c", str(configuration)]
        weir = Program("Weir", command, self.directory / "weir.log")
        weir.start()
        self.programs.append(weir)
        wait_for_socket(weir, self.socket)
        self.wait_for_service(weir)

    def wait_for_service(self, weir: Program) -> None:
        """Until a statement passes: the monitor has to see the server first."""
        deadline = time.monotonic() + START_TIMEOUT_S
        account = self.accounts[0]
        while True:
            try:
                run_sql(self.socket, "SELECT 1", account.name)
                return
            except Failure as failure:
                if time.monotonic() > deadline or not weir.is_running():
                    raise weir.fail(f"serves nothing ({failure})") from None
            time.sleep(0.1)

    def is_running(self) -> bool:
        return bool(self.programs) and all(program.is_running() for program in self.programs)

    def end(self, kill: bool = False) -> None:
        for program in reversed(self.programs):
            program.end(kill)
        self.programs.clear()
