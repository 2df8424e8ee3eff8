"""Checks the container image: what it says of itself, and that it runs in a root that has nothing else."""

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import database
from machine import Machine
from results import ensure, not_run

ROOT = "/var/tmp/image"
CONFIG = "/var/tmp/weir.toml"
TCP = f"mariadb --no-defaults -h127.0.0.1 -P6033 {database.QUERY}"
# A layer is small: the program, and no distribution.
LAYER_BYTES_MAX = 20 * 1024 * 1024


class ContainerImage:
    """The image in a file, and a machine on which it runs as a container engine would run it."""

    def __init__(self, machine: Machine, image: Path, debug: bool) -> None:
        self.machine = machine
        self.image = image
        self.debug = debug
        with tarfile.open(image) as tar:
            self.files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}

    def checks(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("every digest and size is right", self.check_digests),
            ("docker and OCI are told of the same image", self.check_docker),
            ("other programs read it", self.check_readers),
            ("it has one small layer, and no root user", self.check_configuration),
            ("the program runs in a root without libraries", self.check_program),
            ("it starts without servers, and says so", self.check_first_start),
            ("it serves queries to a server from /etc/hosts, without io_uring", self.check_hosts),
            ("it finds a server by DNS", self.check_dns),
            ("it stops at SIGTERM with status 0", self.check_stop),
        ]

    def blob(self, described: dict) -> bytes:
        data = self.files["blobs/" + described["digest"].replace(":", "/")]
        ensure(len(data) == described["size"], f"{described}: {len(data)} bytes")
        return data

    def manifest(self) -> dict:
        return json.loads(self.blob(json.loads(self.files["index.json"])["manifests"][0]))

    def configuration(self) -> dict:
        return json.loads(self.blob(self.manifest()["config"]))

    def layer(self) -> bytes:
        return gzip.decompress(self.blob(self.manifest()["layers"][0]))

    def check_digests(self) -> None:
        ensure(json.loads(self.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}, "no image layout")
        blobs = [name for name in self.files if name.startswith("blobs/sha256/")]
        ensure(len(blobs) == 3, f"{blobs}")
        for name in blobs:
            found = hashlib.sha256(self.files[name]).hexdigest()
            ensure(name == f"blobs/sha256/{found}", f"{name} has the digest {found}")
        told = self.configuration()["rootfs"]["diff_ids"]
        found = hashlib.sha256(self.layer()).hexdigest()
        ensure(told == [f"sha256:{found}"], f"{told}: the layer is {found}")

    def check_docker(self) -> None:
        [told] = json.loads(self.files["manifest.json"])
        manifest = self.manifest()
        for path, described in [(told["Config"], manifest["config"]), (told["Layers"][0], manifest["layers"][0])]:
            ensure(path == "blobs/" + described["digest"].replace(":", "/"), f"{path}: {described}")
        ensure(told["RepoTags"][0].startswith("weir:"), f"{told}")

    def check_readers(self) -> None:
        if shutil.which("skopeo") is None:
            not_run("reading the container image with skopeo", "skopeo is not installed")
            return
        for form in ("oci-archive", "docker-archive"):
            told = subprocess.run(["skopeo", "inspect", f"{form}:{self.image}"], capture_output=True, text=True)
            ensure(told.returncode == 0, f"{form}: {told.stderr}")
            ensure(json.loads(told.stdout)["Architecture"] == self.configuration()["architecture"], told.stdout)

    def check_configuration(self) -> None:
        config = self.configuration()["config"]
        ensure(config["User"].split(":")[0].isdigit() and not config["User"].startswith("0"), config["User"])
        ensure(config["Entrypoint"] == ["/weir"], f"{config}")
        size = self.manifest()["layers"][0]["size"]
        ensure(self.debug or size < LAYER_BYTES_MAX, f"the layer has {size} bytes")
        print(f"       {size / 1024 / 1024:.1f} MiB compressed, {len(self.layer()) / 1024 / 1024:.1f} MiB unpacked")

    def check_program(self) -> None:
        self.machine.run(f"mkdir {ROOT}")
        self.machine.path("/var/tmp/layer.tar").write_bytes(self.layer())
        self.machine.run(f"tar -xpf /var/tmp/layer.tar --numeric-owner -C {ROOT}")
        self.machine.run(f"! find {ROOT} -name '*.so*' | grep .")
        user, group = self.configuration()["config"]["User"].split(":")
        told = self.machine.run(f"chroot --userspec={user}:{group} {ROOT} /weir --version")
        ensure(told.startswith("weir "), told)
        # For systemd, which wants a number to have a name on its side.
        self.machine.run(f"groupadd -g {group} image && useradd -u {user} -g {group} image")
        command = self.configuration()["config"]["Cmd"]
        path = command[command.index("-c") + 1]
        told = self.machine.run(f"chroot --userspec={user}:{group} {ROOT} /weir check -c {path}")
        ensure("good (0 servers" in told, told)

    def start(self, unit: str, *properties: str) -> None:
        """Runs the image's command in its root, as its user, without what engines forbid by default."""
        config = self.configuration()["config"]
        user, group = config["User"].split(":")
        own = [
            f"RootDirectory={ROOT}",
            "MountAPIVFS=yes",
            f"User={user}",
            f"Group={group}",
            "NoNewPrivileges=yes",
            "CapabilityBoundingSet=",
            "SystemCallFilter=~io_uring_setup io_uring_enter io_uring_register",
            "SystemCallErrorNumber=EPERM",
            "KillMode=mixed",
            *properties,
        ]
        told = " ".join(f"-p '{one}'" for one in own)
        command = " ".join([*config["Entrypoint"], *config["Cmd"]])
        self.machine.run(f"systemd-run --quiet --unit={unit} {told} {command}")

    def says(self, unit: str, pattern: str) -> None:
        self.machine.eventually(f"journalctl -u {unit} | grep '{pattern}'")

    def check_first_start(self) -> None:
        self.start("first")
        self.says("first", "no servers are configured")
        self.machine.run("systemctl stop first")

    def check_hosts(self) -> None:
        database.start(self.machine)
        self.machine.path(CONFIG).write_text(database.configuration("db.weir.example", "0.0.0.0:6033"))
        self.machine.path("/var/tmp/hosts").write_text("127.0.0.1 db.weir.example\n")
        mounts = f"BindReadOnlyPaths={CONFIG}:/etc/weir/weir.toml /var/tmp/hosts:/etc/hosts"
        self.start("hosts", mounts)
        answer = self.machine.eventually(TCP)
        ensure(answer.strip() == database.ANSWER, answer)
        self.says("hosts", 'io_driver="epoll"')
        self.machine.run("systemctl stop hosts")

    def check_dns(self) -> None:
        self.machine.copy(Path(__file__).parent / "name_server.py", "/var/tmp/name_server.py")
        self.machine.start(["python3", "/var/tmp/name_server.py", "db.weir.example", "127.0.0.1"])
        self.machine.path("/var/tmp/resolv.conf").write_text("nameserver 127.0.0.53\n")
        mounts = f"BindReadOnlyPaths={CONFIG}:/etc/weir/weir.toml /var/tmp/resolv.conf:/etc/resolv.conf"
        self.start("dns", mounts)
        answer = self.machine.eventually(TCP)
        ensure(answer.strip() == database.ANSWER, answer)

    def check_stop(self) -> None:
        self.machine.run("systemctl kill --kill-who=main --signal=TERM dns")
        self.machine.eventually("! systemctl is-active --quiet dns")
        told = self.machine.run("journalctl -u dns")
        ensure("Deactivated successfully" in told, told[-1000:])
