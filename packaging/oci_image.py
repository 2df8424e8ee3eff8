"""Makes the container image: one layer with the static program and the few files that it reads.

The result is one tar file, both an image layout of the Open Container Initiative (image-spec 1.0) and what `docker save`
writes: podman, skopeo and containerd read the former, every `docker load` the latter.
"""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import tree
from release import Release, git

# As numbers, so that a cluster can check that it is not root.
UID = 6033
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"

PASSWD = f"root:x:0:0:root:/:/\nweir:x:{UID}:{UID}:Weir:/var/lib/weir:/\n"
GROUP = f"root:x:0:\nweir:x:{UID}:\n"
# These two are in the static program; others would need shared libraries.
NSSWITCH = "hosts: files dns\n"


@dataclass(frozen=True)
class Entry:
    """A file, or a directory if it has no data."""

    path: str
    mode: int
    data: bytes | None = None
    owner: int = 0
    group: int = 0


def entries(program: bytes, sbom: bytes, licences: bytes) -> list[Entry]:
    doc = "usr/share/doc/weir"
    folders = ["dev", "etc", "etc/weir", "proc", "run", "sys", "usr", "usr/share", "usr/share/doc", doc, "var"]
    own = ["run/weir", "var/lib/weir", "var/log/weir"]
    config = (tree.PACKAGING / "weir.toml").read_bytes()
    found = [Entry(path, 0o755) for path in [*folders, "var/lib", "var/log"]]
    found += [Entry(path, 0o750, owner=UID, group=UID) for path in own]
    found += [
        Entry("tmp", 0o1777),
        Entry("weir", 0o755, program),
        Entry("etc/passwd", 0o644, PASSWD.encode()),
        Entry("etc/group", 0o644, GROUP.encode()),
        Entry("etc/nsswitch.conf", 0o644, NSSWITCH.encode()),
        Entry("etc/weir/weir.toml", 0o640, config, group=UID),
        Entry(f"{doc}/LICENSE", 0o644, (tree.ROOT / "LICENSE").read_bytes()),
        Entry(f"{doc}/third-party-licences", 0o644, licences),
        Entry(f"{doc}/weir.cdx.json", 0o644, sbom),
    ]
    return sorted(found, key=lambda entry: entry.path)


def packed(entries: list[Entry], epoch: int) -> bytes:
    """The entries as a tar file, of which every byte follows from them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.mode, info.mtime = entry.mode, epoch
            info.uid, info.gid = entry.owner, entry.group
            if entry.data is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(entry.data)
                tar.addfile(info, io.BytesIO(entry.data))
    return out.getvalue()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def described(media_type: str, data: bytes) -> dict:
    return {"mediaType": media_type, "digest": f"sha256:{digest(data)}", "size": len(data)}


def encoded(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def labels(release: Release) -> dict[str, str]:
    told = {
        "title": "weir",
        "description": "MySQL proxy that makes a cluster look like one server",
        "version": release.version,
        "created": release.timestamp,
        "licenses": "Apache-2.0",
    }
    if revision := git("rev-parse", "HEAD"):
        told["revision"] = revision
    return {f"org.opencontainers.image.{name}": value for name, value in told.items()}


def configuration(layer: bytes, architecture: str, release: Release) -> dict:
    return {
        "architecture": architecture,
        "os": "linux",
        "created": release.timestamp,
        "config": {
            "User": f"{UID}:{UID}",
            "ExposedPorts": {"6033/tcp": {}},
            "Env": ["PATH=/"],
            "Entrypoint": ["/weir"],
            # As the systemd unit starts it.
            "Cmd": ["serve", "-c", "/etc/weir/weir.toml", "--config-mode=file"],
            "Labels": labels(release),
            "StopSignal": "SIGTERM",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}"]},
        "history": [{"created": release.timestamp, "created_by": "scripts/package"}],
    }


def check_static(program: Path) -> None:
    """A program that needs a dynamic linker would not start in an image that has none."""
    told = subprocess.run(["readelf", "-l", program], check=True, capture_output=True, text=True).stdout
    if "INTERP" in told:
        raise SystemExit(f"package: {program} is not static: an image of it alone would not start")


def make(
    program: Path, machine: str, sbom: bytes, licences: bytes, out: Path, release: Release, quick: bool
) -> Path:
    """Makes the image of the static program, for a machine such as x86_64. `quick`: compressed little, for tests."""
    check_static(program)
    architecture = ARCHITECTURES[machine]
    layer = packed(entries(program.read_bytes(), sbom, licences), release.epoch)
    blobs = {
        LAYER: gzip.compress(layer, compresslevel=1 if quick else 9, mtime=0),
        CONFIG: encoded(configuration(layer, architecture, release)),
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(CONFIG, blobs[CONFIG]),
        "layers": [described(LAYER, blobs[LAYER])],
    }
    blobs[MANIFEST] = encoded(manifest)
    index = {
        **described(MANIFEST, blobs[MANIFEST]),
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {
            "org.opencontainers.image.ref.name": release.tag,
            "io.containerd.image.name": f"docker.io/library/weir:{release.tag}",
        },
    }
    place = {kind: f"blobs/sha256/{digest(data)}" for kind, data in blobs.items()}
    docker = [{"Config": place[CONFIG], "RepoTags": [f"weir:{release.tag}"], "Layers": [place[LAYER]]}]
    files = [Entry(place[kind], 0o644, data) for kind, data in blobs.items()]
    files += [
        Entry("blobs", 0o755),
        Entry("blobs/sha256", 0o755),
        Entry("index.json", 0o644, encoded({"schemaVersion": 2, "manifests": [index]})),
        Entry("manifest.json", 0o644, encoded(docker)),
        Entry("oci-layout", 0o644, encoded({"imageLayoutVersion": "1.0.0"})),
    ]
    made = out / f"weir-{release.tag}-{architecture}.image.tar"
    made.write_bytes(packed(sorted(files, key=lambda file: file.path), release.epoch))
    return made
