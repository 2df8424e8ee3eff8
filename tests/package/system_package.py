"""Checks a .deb or .rpm on a machine of its own: it is installed, used, upgraded under load, removed."""

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import database
from machine import Machine, MachineError
from results import ensure, not_run

CONFIG = "/etc/weir/weir.toml"
TCP = f"mariadb --no-defaults -h127.0.0.1 -P6033 {database.QUERY}"
SOCKET = f"mariadb --no-defaults --socket=/run/weir/weir.sock {database.QUERY}"
MAIN_PID = "systemctl show --property=MainPID --value weir"


class SystemPackage(ABC):
    """One kind of package, on a machine where it is not installed."""

    kind: str
    # What of an upgrade's own configuration is put beside the edited one.
    beside: str

    def __init__(self, machine: Machine, older: Path, newer: Path) -> None:
        self.machine = machine
        self.older = older
        self.newer = newer

    @abstractmethod
    def install(self, package: str) -> str:
        """The command that installs or upgrades."""

    @abstractmethod
    def installed_version(self) -> str:
        """The command that prints which version is installed."""

    @abstractmethod
    def check_enabled(self) -> None:
        """Whether it starts with the machine is as the distribution wants it."""

    @abstractmethod
    def check_removal(self) -> None:
        """It goes, and leaves what it should."""

    def checks(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("it installs, and is not started", self.check_installation),
            ("files belong to whom they should", self.check_files),
            ("the program finds its libraries", lambda: self.expect("weir --version", r"^weir \d")),
            ("the unit is sound", self.check_unit),
            ("the configuration is valid, also with its example", self.check_configuration),
            ("every manual page renders", self.check_manual),
            ("shells complete its command line", self.check_completions),
            ("it starts without servers, and says so", self.check_first_start),
            ("a reload serves queries, as user weir", self.check_service),
            ("an upgrade keeps the configuration, and refuses no client", self.check_upgrade),
            ("it restarts", self.check_restart),
            ("it can be removed", self.check_removal),
        ]

    def expect(self, line: str, pattern: str) -> str:
        printed = self.machine.run(line)
        ensure(re.search(pattern, printed, re.MULTILINE), f"{line}: {printed!r} is not {pattern!r}")
        return printed

    def check_installation(self) -> None:
        self.machine.run("! getent passwd weir && ! test -e /usr/bin/weir")
        self.machine.copy(self.older, "/var/tmp/older")
        self.machine.run(self.install("/var/tmp/older"))
        self.expect(self.installed_version(), r"^0\.0\.1(-1)?$")
        self.expect("systemctl show --property=ActiveState --value weir", "^inactive$")
        self.check_enabled()

    def check_files(self) -> None:
        self.expect("getent passwd weir", r"^weir:.*:/var/lib/weir:.*nologin$")
        self.expect(f"stat -c '%a %U %G' {CONFIG}", "^640 root weir$")
        self.expect("stat -c '%a %U %G' /usr/bin/weir", "^755 root root$")
        self.expect(f"setpriv --reuid=weir --regid=weir --init-groups head -c1 {CONFIG}", "^#")
        self.expect(f"setpriv --reuid=nobody --clear-groups cat {CONFIG} 2>&1 || true", "Permission denied")

    def check_unit(self) -> None:
        told = self.machine.run("systemd-analyze verify weir.service 2>&1")
        about_weir = [line for line in told.splitlines() if "weir" in line]
        ensure(not about_weir, "\n".join(about_weir))

    def check_configuration(self) -> None:
        self.expect(f"weir check -c {CONFIG}", r"good \(0 servers, 0 users")
        text = self.machine.path(CONFIG).read_text()
        example = re.sub(r"^#(?=\[|[a-z_]+ = )", "", text, flags=re.MULTILINE)
        self.machine.path("/var/tmp/example.toml").write_text(example)
        self.expect("weir check -c /var/tmp/example.toml", r"good \(2 servers, 1 users, 1 clusters\)")

    def check_manual(self) -> None:
        pages = self.machine.run("ls /usr/share/man/man1/weir*.1.gz /usr/share/man/man5/weir.toml.5.gz").split()
        ensure(len(pages) > 15, f"only {pages}")
        for page in pages:
            told = self.machine.run(f"man --warnings -E UTF-8 -l {page} 2>&1 >/var/tmp/page")
            ensure(not told, f"{page}: {told}")
            self.expect("cat /var/tmp/page", "^NAME")
        self.expect("man 5 weir.toml", "mysql_servers")
        self.expect("man weir-config-check", "EXIT STATUS")

    def check_completions(self) -> None:
        place = "/usr/share/bash-completion/completions/weir"
        words = "COMP_WORDS=(weir switch); COMP_CWORD=1; _weir weir switch weir; echo ${COMPREPLY[@]}"
        self.expect(f"source {place}; {words}", "^switchover$")
        for shell, file in [("fish", "*/vendor_completions.d/weir.fish"), ("zsh", "*/_weir")]:
            if self.machine.run(f"command -v {shell}", may_fail=True):
                self.machine.run(f"{shell} -n $(find /usr/share -path '{file}')")
            else:
                not_run(f"the packages' completions for {shell}", f"{shell} is not installed")

    def check_first_start(self) -> None:
        # Returns once it has said that it serves clients.
        self.machine.run("systemctl start weir")
        self.machine.eventually("journalctl -u weir | grep 'no servers are configured'")
        self.expect("systemctl is-active weir", "^active$")

    def check_service(self) -> None:
        database.start(self.machine)
        own = database.configuration("127.0.0.1", "0.0.0.0:6033;/run/weir/weir.sock")
        # As an editor does: owner and mode stay.
        self.machine.path(CONFIG).write_text(own)
        self.machine.run("systemctl reload weir")
        for line in (TCP, SOCKET):
            answer = self.machine.eventually(line)
            ensure(answer.strip() == database.ANSWER, answer)
        self.expect(f"ps -o user= -p $({MAIN_PID})", "^weir$")
        self.expect("stat -c '%a %U' /var/lib/weir /var/log/weir", r"\A750 weir\n750 weir\n\Z")

    def check_upgrade(self) -> None:
        before = self.machine.run(MAIN_PID)
        edited = self.machine.path(CONFIG).read_text()
        self.machine.copy(self.newer, "/var/tmp/newer")
        with Load(self.machine, TCP) as load:
            self.machine.run(self.install("/var/tmp/newer"))
            self.machine.eventually(f"test $({MAIN_PID}) != {before.strip()}")
            self.machine.eventually("journalctl -u weir | grep 'the old process drains'")
            load.wait_for_more(5)
        ensure(not load.failures, f"{len(load.failures)} of {load.done} clients were refused: {load.failures[:1]}")
        self.machine.run(f"! ({self.installed_version()} | grep -q '^0.0.1')")
        # The program that runs is the file that is there now.
        self.expect(f"stat -L -c %i /proc/$({MAIN_PID})/exe /usr/bin/weir | uniq | wc -l", "^1$")
        self.expect("systemctl is-active weir", "^active$")
        ensure(self.machine.path(CONFIG).read_text() == edited, "the edited configuration was replaced")
        ensure(self.machine.path(self.beside).exists(), f"there is no {self.beside}")
        self.expect(f"stat -c '%a %U %G' {CONFIG}", "^640 root weir$")
        # The socket is in a directory that systemd removes with the service.
        ensure(self.machine.run(SOCKET).strip() == database.ANSWER, "another answer")

    def check_restart(self) -> None:
        self.machine.run("systemctl restart weir")
        ensure(self.machine.eventually(TCP).strip() == database.ANSWER, "another answer")


class Load:
    """Clients that come one after the other, until the end of the context."""

    def __init__(self, machine: Machine, line: str) -> None:
        self.machine, self.line = machine, line
        self.done = 0
        self.failures: list[str] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> "Load":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                self.machine.run(self.line)
            except MachineError as error:
                self.failures.append(str(error))
            self.done += 1

    def wait_for_more(self, count: int) -> None:
        """Waits until so many clients more have come."""
        wanted = self.done + count
        while self.done < wanted and self.thread.is_alive():
            self.stop.wait(0.05)


class Deb(SystemPackage):
    kind = "deb"
    beside = f"{CONFIG}.dpkg-dist"

    def install(self, package: str) -> str:
        return f"dpkg --force-confdef --force-confold -i {package}"

    def installed_version(self) -> str:
        return "dpkg-query -W -f '${Version}\\n' weir"

    def check_enabled(self) -> None:
        self.expect("systemctl is-enabled weir", "^enabled$")

    def check_removal(self) -> None:
        self.machine.run("dpkg -r weir")
        self.machine.run(f"! pgrep -x weir && ! test -e /usr/bin/weir && test -s {CONFIG}")
        self.machine.run("dpkg -P weir")
        for gone in ("/etc/weir", "/var/lib/weir", "/var/log/weir"):
            self.machine.run(f"! test -e {gone}")
        self.machine.run("getent passwd weir")


class Rpm(SystemPackage):
    kind = "rpm"
    beside = f"{CONFIG}.rpmnew"

    def install(self, package: str) -> str:
        # The database of rpm knows nothing of what Debian has installed.
        return f"rpm -U --nodeps {package}"

    def installed_version(self) -> str:
        return "rpm -q --qf '%{VERSION}-%{RELEASE}\\n' weir"

    def check_enabled(self) -> None:
        self.expect("rpm -qp --requires /var/tmp/older", r"^libc\.so\.6\(GLIBC_")
        # Debian has no presets, with which systemd enables what is new.
        self.expect("systemctl is-enabled weir || true", "^(enabled|disabled)$")
        self.machine.run("systemctl enable weir && rpm -V --nodeps weir")

    def check_removal(self) -> None:
        self.machine.run("rpm -e weir")
        self.machine.run(f"! pgrep -x weir && ! test -e /usr/bin/weir && test -s {CONFIG}.rpmsave")
        self.expect("systemctl is-enabled weir 2>&1 || true", "No such file|not-found")
        self.machine.run("getent passwd weir")
