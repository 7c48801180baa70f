"""Recognising a data directory of Go's nsqd. Without one, no other file of the import is loaded."""

from __future__ import annotations

import os
from pathlib import Path

# The folder of an unfinished import, and a part of the name of each file of Go's disk queues.
FOLDER = "import"
_GO_QUEUE = ".diskqueue."


def may_have_go_files(directory: Path) -> bool:
    """True if the directory has files to import, or an import that was cut short. Raises OSError."""
    return any(name == FOLDER or _GO_QUEUE in name for name in os.listdir(directory))
