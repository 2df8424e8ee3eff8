"""Writes the list of what is in the program (SBOM), as CycloneDX 1.5 has it, and the texts of its licences."""

import hashlib
import json
import re
import uuid

from libraries import Library
from release import Release

# Equal contents have equal serial numbers: a random one would make each build another.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/schema/bom-1.5.schema.json")
TEXTS = re.compile(r"^(licen[cs]e|copying|notice|copyright|unlicense)", re.IGNORECASE)


def reference(library: Library) -> str:
    return library.purl or f"weir:{library.name}@{library.version}"


def component(library: Library) -> dict:
    told = {
        "type": "library",
        "bom-ref": reference(library),
        "name": library.name,
        "version": library.version,
        "licenses": [{"expression": library.licence}],
    }
    if library.purl:
        told["purl"] = library.purl
    if library.checksum:
        told["hashes"] = [{"alg": "SHA-256", "content": library.checksum}]
    if library.contains:
        told["components"] = [component(inner) for inner in library.contains]
    return told


def subject(program: bytes, release: Release) -> dict:
    return {
        "type": "application",
        "bom-ref": "weir",
        "name": "weir",
        "version": release.version,
        "licenses": [{"expression": "Apache-2.0"}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(program).hexdigest()}],
    }


def sbom(libraries: list[Library], program: bytes, release: Release) -> bytes:
    """The list for a program that these libraries are in; the first crate of all, weir, is the subject."""
    by_key = {library.key: library for library in libraries}
    own = next(library for library in libraries if library.name == "weir")
    others = [library for library in libraries if library is not own]
    systems = [library for library in others if not library.folder]
    edges = [{"ref": "weir", "dependsOn": dependencies(own, by_key) + [reference(one) for one in systems]}]
    edges += [{"ref": reference(one), "dependsOn": dependencies(one, by_key)} for one in others]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.timestamp,
            "tools": {"components": [{"type": "application", "name": "scripts/package"}]},
            "component": subject(program, release),
        },
        "components": [component(library) for library in others],
        "dependencies": edges,
    }
    number = uuid.uuid5(NAMESPACE, json.dumps(document, sort_keys=True))
    return json.dumps({"serialNumber": f"urn:uuid:{number}", **document}, indent=1).encode() + b"\n"


def dependencies(library: Library, by_key: dict[tuple[str, str], Library]) -> list[str]:
    return [reference(by_key[key]) for key in library.needs]


def texts_of(library: Library) -> list[str]:
    """The texts of its licence, as they lie beside its sources."""
    folder = library.folder
    files = sorted(path for path in folder.iterdir() if path.is_file() and TEXTS.match(path.name)) if folder else []
    return [path.read_text(errors="replace") for path in files] + ([library.text] if library.text else [])


def licences(libraries: list[Library]) -> bytes:
    """Each text once, below the libraries that have it."""
    names: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    without = []
    for library in (one for outer in libraries for one in (outer, *outer.contains)):
        name = f"{library.name} {library.version} ({library.licence})"
        found = texts_of(library)
        if not found and not library.name.startswith("weir"):
            without.append(name)
        for text in found:
            # The same text is wrapped in many ways.
            key = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            texts.setdefault(key, text.replace("\r\n", "\n").strip())
            names.setdefault(key, []).append(name)
    parts = ["Weir is under the Apache License 2.0. The libraries in the program are under the licences below.\n"]
    parts += ["Without a text of their own:\n" + "".join(f"  {one}\n" for one in without)] if without else []
    parts += ["".join(f"  {name}\n" for name in names[key]) + f"\n{text}\n" for key, text in texts.items()]
    return f"\n{'=' * 78}\n\n".join(parts).encode()
