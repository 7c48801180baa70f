"""The version of this project, and the release of NSQ that it behaves like."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

# setup.cfg reads this line, so that the metadata of the installed package have the same version. Programs read the
# constant: importlib.metadata would take 30 ms of their start, and finds nothing in an archive for Spark's executors.
PROJECT_VERSION = "1.0.0rc1"

# The version for clients, nsqlookupd, /info and /stats: NSQ's tools compare it with the releases of Go's nsqd.
NSQ_VERSION = "1.3.0"


def version_string(program: str) -> str:
    """Return `nsqd v1.3.0 (built w/nsqd-py-1.0.0rc1-python3.11.7)`, for `--version`, the first log line and /stats.

    Go's programs print `nsqd v1.3.0 (built w/go1.21.5)`. Scripts that parse this line find the release of NSQ in the
    same position; the version of this project is in the parentheses. Programs expect only [a-z0-9.-] there. The wheel with
    compiled modules adds `-compiled`.
    """
    python = ".".join(str(part) for part in sys.version_info[:3])
    compiled = "-compiled" if PathFinder.find_spec("nsqd_py__mypyc") else ""
    return f"{program} v{NSQ_VERSION} (built w/nsqd-py-{PROJECT_VERSION}-python{python}{compiled})"
