"""A PostgreSQL server of its own, on a Unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def running_postgresql() -> Iterator[str]:
    """Yield the address of a server that runs until the end. Skips the test if none is installed."""
    if not shutil.which("initdb") and not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        pytest.skip("PostgreSQL's server is not installed")
    found = shutil.which("initdb") or str(max(Path("/usr/lib/postgresql").glob("*/bin/initdb")))
    binaries = Path(found).resolve().parent
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    # Not in tmp_path, whose parents are closed to other users; and short, for the path of the socket.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        if user is not None:
            shutil.chown(name, user)
        data = Path(name, "data")

        def run(*command: str | Path) -> None:
            subprocess.run(command, cwd=name, user=user, capture_output=True, timeout=60, check=True)

        run(binaries / "initdb", "--auth=trust", "--username=test", "--no-sync", "--pgdata", data)
        options = f"-c listen_addresses= -c unix_socket_directories={name} -c fsync=off"
        log = Path(name, "log")
        run(binaries / "pg_ctl", "start", "--wait", "--pgdata", data, "--options", options, "--log", log)
        try:
            yield f"postgresql://test@/postgres?host={name}"
        finally:
            run(binaries / "pg_ctl", "stop", "--mode=immediate", "--wait", "--pgdata", data)
