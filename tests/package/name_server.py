"""Answers DNS on 127.0.0.53: NAME has ADDRESS, other names do not exist. Usage: name_server.py NAME ADDRESS"""

import socket
import struct
import sys

TYPE_A = 1
NO_SUCH_NAME = 3


def question(packet: bytes) -> tuple[str, int, bytes]:
    """The name that is asked for, the type, and the question as it stands there (RFC 1035, 4.1.2)."""
    labels, at = [], 12
    while length := packet[at]:
        labels.append(packet[at + 1 : at + 1 + length].decode())
        at += 1 + length
    (kind,) = struct.unpack_from(">H", packet, at + 1)
    return ".".join(labels).lower(), kind, packet[12 : at + 5]


def answer(packet: bytes, name: str, address: str) -> bytes:
    asked, kind, text = question(packet)
    found = socket.inet_aton(address) if asked == name and kind == TYPE_A else None
    flags = 0x8180 if asked == name else 0x8180 | NO_SUCH_NAME
    head = struct.pack(">HHHHHH", *struct.unpack_from(">H", packet), flags, 1, 1 if found else 0, 0, 0)
    # The name by a pointer to the question; for 60 s.
    record = struct.pack(">HHHIH", 0xC00C, TYPE_A, 1, 60, 4) + found if found else b""
    return head + text + record


def main(name: str, address: str) -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.53", 53))
    while True:
        packet, client = server.recvfrom(512)
        server.sendto(answer(packet, name, address), client)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
