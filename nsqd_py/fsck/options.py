"""The settings of --check-data and --export-to-go."""

from __future__ import annotations

from nsqd_py.settings.declaration import Options, string


class CheckOptions(Options, title="A stopped data directory"):
    """The settings of --check-data and --export-to-go."""

    check_data: str = string(
        "Report the contents of this data directory and any damage, and exit with 0 if there is none, with 1 if there "
        "is; with --log-format=json, as JSON. No nsqd may be using the directory. With --store, also check the objects there.",
        config_key="",
    )
    export_to_go: str = string(
        "Write the topics, channels and unfinished messages of --data-path, which no nsqd may be using, to this new "
        "directory as files of Go's nsqd v1.3.0, with its --max-bytes-per-file and --max-msg-size, and exit.",
        config_key="",
    )
