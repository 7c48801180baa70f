"""The settings of --check-data and --export-to-go."""

from __future__ import annotations

from nsqd_py.settings.declaration import Options, setting, string
from nsqd_py.settings.kinds import choice

TEXT, JSON = "text", "json"


class CheckOptions(Options, title="A stopped data directory"):
    """The settings of --check-data and --export-to-go."""

    check_data: str = string(
        "Report the contents of this data directory and any damage, and exit with 0 if there is none, with 1 if there "
        "is. No nsqd may be using the directory.",
        config_key="",
    )
    check_format: str = setting(
        choice({TEXT: TEXT, JSON: JSON}, word="format"),
        TEXT,
        "Format of the report of --check-data: text or json.",
        config_key="",
    )
    export_to_go: str = string(
        "Write the topics, channels and unfinished messages of --data-path, which no nsqd may be using, to this new "
        "directory as files of Go's nsqd v1.3.0, with its --max-bytes-per-file and --max-msg-size, and exit.",
        config_key="",
    )
