"""Files for administrators that are installed with nsqd-py: systemd units, dashboards, alerts, other programs' settings.

`python -m nsq_apps.contrib` lists them, and `python -m nsq_apps.contrib systemd/nsqd.service` prints one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import nsqd_py
from nsqd_py.runtime.command import complain, with_streams

_FOLDERS = ("grafana", "integrations", "prometheus", "systemd")


def directory() -> Path:
    """Return the directory with the files: inside the installed package, or at the top of a checkout."""
    package = Path(nsqd_py.__path__[0])
    installed = package / "contrib"
    if installed.is_dir():
        return installed
    return package.parent / "contrib"


def names() -> list[str]:
    """Return the names of the files with their folders, such as `systemd/nsqd.service`."""
    return sorted(f"{folder}/{path.name}" for folder in _FOLDERS for path in (directory() / folder).iterdir())


def main(argv: Sequence[str] | None = None) -> int:
    """List the files with their paths, or print the requested ones. Return the exit status."""
    return with_streams("nsq_apps.contrib", lambda: _print(sys.argv[1:] if argv is None else argv))


def _print(requested: Sequence[str]) -> int:
    unknown = [name for name in requested if name not in names()]
    if unknown:
        complain(f"{unknown[0]}: no such file; choose from {', '.join(names())}")
        return 2
    if not requested:
        print(*(directory() / name for name in names()), sep="\n")
    for name in requested:
        print((directory() / name).read_text("utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
