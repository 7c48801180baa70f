"""Run inside new namespaces: makes the network and the root directory of a `NamespaceMachine`, and holds them.

The new root shows all of the machine's directories, with those besides that the pages name. Prints `ready`, and ends
when its standard input does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

REAL = ".real"  # the machine's root directory, inside the new one


def main() -> None:
    root, places = Path(sys.argv[1]), Path(sys.argv[2])
    directories, addresses, hosts = (argument.split(",") for argument in sys.argv[3:])
    make_network(addresses)
    make_root(root, places, directories)
    (root / "etc/hosts").unlink(missing_ok=True)
    names = f"localhost {socket.gethostname()} {' '.join(hosts)}"
    (root / "etc/hosts").write_text(f"127.0.0.1 {names}\n")
    os.chroot(root)
    print("ready", flush=True)
    sys.stdin.read()


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def make_network(addresses: list[str]) -> None:
    run("ip", "link", "set", "lo", "up")
    for address in addresses:
        run("ip", "addr", "add", f"{address}/32", "dev", "lo")


def make_root(root: Path, places: Path, directories: list[str]) -> None:
    root.mkdir()
    run("mount", "-t", "tmpfs", "tmpfs", root)
    (root / REAL).mkdir()
    run("mount", "--rbind", "/", root / REAL)
    wanted = {Path(name) for name in directories}
    # /etc is among them, for its file of hosts.
    mirrored = {parent for path in wanted for parent in path.parents}
    for parent in sorted(mirrored, key=lambda path: len(path.parts)):
        mirror(parent, root, wanted | mirrored)
    for path in wanted:
        target = root / path.relative_to("/")
        target.mkdir()
        run("mount", "--bind", places / path.relative_to("/"), target)


def mirror(directory: Path, root: Path, others: set[Path]) -> None:
    """Make the directory in the new root, with all that is in the real one but `others`."""
    target = root / directory.relative_to("/")
    target.mkdir(exist_ok=True)
    for entry in os.scandir(directory) if directory.is_dir() else ():
        path, here = Path(entry.path), target / entry.name
        if path in others:
            continue
        if entry.is_symlink() and directory == Path("/"):
            here.symlink_to(os.readlink(entry.path))
        elif directory == Path("/") and entry.is_dir():
            here.mkdir()
            run("mount", "--rbind", path, here)
        else:
            here.symlink_to(f"/{REAL}{path}")


if __name__ == "__main__":
    main()
