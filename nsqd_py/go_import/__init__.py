"""Imports the data directory of Go's nsqd, once, at the start. No other file here is loaded if there is none.

go_files   the format of the disk queues of Go's nsqd                   pure
go_queue   reads a disk queue of Go's nsqd
part       docks the import at nsqd
take_over  the import, step by step; moves new files into the data path and Go's files aside, safe against a kill
topics     writes a topic's log, and the journals of its channels
"""

import os
from pathlib import Path

# The folder of an unfinished import, and a part of the name of each file of Go's disk queues.
FOLDER = "import"
_GO_QUEUE = ".diskqueue."


def may_have_go_files(directory: Path) -> bool:
    """True if the directory has files to import, or an import that was cut short. Raises OSError."""
    return any(name == FOLDER or _GO_QUEUE in name for name in os.listdir(directory))
