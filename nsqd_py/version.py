"""Which NSQ this is."""

from __future__ import annotations

import sys

# What clients and nsqlookupd are told: the NSQ release whose behaviour this is. The version of the package
# itself stands in setup.cfg.
NSQ_VERSION = "1.3.0"


def version_string(program: str) -> str:
    """What `--version` and the first log line say: `nsqd v1.3.0 (built w/python3.11.7)`."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    return f"{program} v{NSQ_VERSION} (built w/python{python})"
