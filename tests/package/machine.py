"""Starts a machine like a freshly installed one: namespaces with a copy of this machine's root, in which systemd runs.

The root is an overlay: what is written goes to memory, and is gone at the end. Network, processes and mounts are its own, so
that ports and services of this machine are not met. Needs root.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# What the first process of the namespaces does, with the place of the root as $1.
BOOT = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/new" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/new,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
  mkdir sys/fs/cgroup/unified sys/fs/cgroup/systemd
  mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
  mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
fi
# A new machine forbids packages nothing, and starts nothing of what is installed here.
rm -f usr/sbin/policy-rc.d
# The index of all manual pages takes a minute, and nobody searches them here.
rm -f var/lib/man-db/auto-update
printf '[Unit]\\nDefaultDependencies=no\\n' >etc/systemd/system/bare.target
ip link set lo up
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=weir chroot . /lib/systemd/systemd --unit=bare.target
"""
NAMESPACES = ["--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup"]
PROGRAMS = ["unshare", "nsenter", "ip", "chroot", "systemctl"]
BOOT_S = 30
COMMAND_S = 180


class MachineError(Exception):
    """It could not be started, or a command failed in it."""


class Machine:
    """A running one; a context manager that ends it."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="weir-machine-", dir="/var/tmp"))
        self.log = tempfile.TemporaryFile()
        self.outer = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "bash", "-c", BOOT, "boot", self.place],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        self.started: list[subprocess.Popen] = []
        try:
            self.first = self.wait_for_first()
        except MachineError:
            self.end()
            raise

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for process in [*self.started, self.outer]:
            process.kill()
            process.wait()
        # Its mounts are gone with its processes, the last of which may still be on their way.
        for _ in range(50):
            try:
                self.place.rmdir()
                break
            except OSError:
                time.sleep(0.1)

    def wait_for_first(self) -> int:
        """The process id of its systemd, once that answers."""
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children")
        until = time.monotonic() + BOOT_S
        while time.monotonic() < until and self.outer.poll() is None:
            try:
                first = children.read_text().split()
                # Before, it would be this machine's that answers.
                is_systemd = bool(first) and Path(f"/proc/{first[0]}/comm").read_text().strip() == "systemd"
            except OSError:
                break
            if is_systemd:
                self.first = int(first[0])
                if self.run("systemctl is-system-running", may_fail=True).strip() in ("running", "degraded"):
                    return self.first
            time.sleep(0.1)
        self.log.seek(0)
        raise MachineError(f"no systemd in namespaces: {self.log.read().decode(errors='replace')[-2000:]}")

    def inside(self, command: list[str]) -> list[str]:
        """The command as it is started from outside."""
        return ["nsenter", "--target", str(self.first), "--all", "--root", "--", "env", "--chdir=/", *command]

    def run(self, line: str, may_fail: bool = False) -> str:
        """Runs a line of shell in it, as root, and gives what it prints."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        try:
            done = subprocess.run(
                self.inside(["bash", "-o", "pipefail", "-c", line]),
                capture_output=True,
                text=True,
                errors="replace",
                env=environment,
                stdin=subprocess.DEVNULL,
                timeout=COMMAND_S,
            )
        except subprocess.TimeoutExpired:
            raise MachineError(f"{line}: not done after {COMMAND_S} s") from None
        if done.returncode != 0 and not may_fail:
            raise MachineError(f"{line}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, command: list[str]) -> subprocess.Popen:
        """Starts something that runs until the machine ends."""
        process = subprocess.Popen(
            self.inside(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.started.append(process)
        return process

    def journal(self) -> str:
        """The last lines of what its services have said."""
        return self.run("journalctl --no-pager --lines=40", may_fail=True)

    def path(self, path: str) -> Path:
        """Where a file of it is, seen from outside."""
        return Path(f"/proc/{self.first}/root/{path.lstrip('/')}")

    def copy(self, source: Path, to: str) -> None:
        shutil.copyfile(source, self.path(to))

    def eventually(self, line: str, seconds: float = 30) -> str:
        """Runs a line again until it succeeds."""
        until = time.monotonic() + seconds
        while True:
            try:
                return self.run(line)
            except MachineError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)


def obstacle() -> str | None:
    """Why no machine can be started here."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not found"
    if not Path("/lib/systemd/systemd").exists():
        return "systemd is not installed"
    try:
        Machine().end()
    except MachineError as error:
        return str(error)
    return None
