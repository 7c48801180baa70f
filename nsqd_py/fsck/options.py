"""The settings with which nsqd works on a stopped data directory instead of serving."""

from __future__ import annotations

from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.types import BOOL, STRING, choice

TEXT = "text"
JSON = "json"


class CheckOptions(Options, title="A stopped data directory"):
    """The settings of --check-data and --export-to-go."""

    check_data: str = setting(
        STRING,
        "",
        "Report the contents of this data directory and any damage, and exit with 0 if there is none, with 1 if there "
        "is. No nsqd may be using the directory.",
        config_key="",
    )
    repair: bool = setting(
        BOOL, False, "With --check-data: copy damaged data to the subdirectory `damaged`, and repair the files.", config_key=""
    )
    check_format: str = setting(
        choice({TEXT: TEXT, JSON: JSON}, word="format"),
        TEXT,
        "Format of the report of --check-data: text or json.",
        config_key="",
    )
    export_to_go: str = setting(
        STRING,
        "",
        "Write the topics, channels and unfinished messages of --data-path, which no nsqd may be using, to this new "
        "directory as files of Go's nsqd v1.3.0, with its --max-bytes-per-file and --max-msg-size, and exit.",
        config_key="",
    )
