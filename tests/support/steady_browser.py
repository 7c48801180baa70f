"""`python steady_browser.py CHROMIUM ARGUMENTS...` runs a Chromium that hears of no change of the machine's network.

It gives up all its requests, also those to 127.0.0.1, when a network interface comes or goes (ERR_NETWORK_CHANGED), and
tests in other workers make network namespaces. The kernel reports changes by netlink, and a seccomp filter (seccomp(2))
refuses such sockets. Where there is no filter for the machine, the browser runs as it is.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys

# By machine: what the kernel calls it (AUDIT_ARCH_...), and the number of the system call `socket`.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
# Instructions of the filter: load a word of `struct seccomp_data`, jump by a comparison, return a verdict.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_FAIL, _ALLOW = 0x00050000, 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _instruction(code: int, value: int, skip_if_not: int = 0) -> bytes:
    return struct.pack("HBBI", code, 0, skip_if_not, value)


def refuse_netlink(machine: int, socket_call: int) -> None:
    """Refuse netlink sockets to this process from now on, and to those that it starts. Raises OSError."""
    instructions = (
        _instruction(_LOAD, _MACHINE_AT),
        _instruction(_JUMP_IF_EQUAL, machine, skip_if_not=5),
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_JUMP_IF_EQUAL, socket_call, skip_if_not=3),
        _instruction(_LOAD, _FIRST_ARGUMENT_AT),
        _instruction(_JUMP_IF_EQUAL, socket.AF_NETLINK, skip_if_not=1),
        _instruction(_RETURN, _FAIL | errno.EAFNOSUPPORT),
        _instruction(_RETURN, _ALLOW),
    )
    kept = ctypes.create_string_buffer(b"".join(instructions))
    program = _Program(len(instructions), ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    is_set = libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    if not is_set or libc.prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program)) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    known = _MACHINES.get(os.uname().machine)
    if known is not None:
        try:
            refuse_netlink(*known)
        except OSError as error:
            print(f"the browser runs without a filter: {error}", file=sys.stderr)
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
