"""The version of this project, and the release of NSQ whose behaviour it has."""

from __future__ import annotations

import sys

# setup.cfg reads this line, so that the metadata of the installed package have the same version. Programs read the
# constant: importlib.metadata would take 30 ms of their start, and finds nothing in an archive for Spark's executors.
PROJECT_VERSION = "0.1.0"

# What clients, nsqlookupd, /info and /stats are told: tools of NSQ compare it with the releases of Go's nsqd.
NSQ_VERSION = "1.3.0"


def version_string(program: str) -> str:
    """Return what `--version`, the first log line and /stats print: `nsqd v1.3.0 (built w/nsqd-py-0.1.0,python3.11.7)`.

    Go's programs print `nsqd v1.3.0 (built w/go1.21.5)`. Scripts that read that find the release of NSQ where it
    was; what it is built with names this project and its version.
    """
    python = ".".join(str(part) for part in sys.version_info[:3])
    return f"{program} v{NSQ_VERSION} (built w/nsqd-py-{PROJECT_VERSION},python{python})"
