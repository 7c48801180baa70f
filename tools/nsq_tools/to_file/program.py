"""The program nsq-to-file: its name, what it does, and examples for `--help` and the reference page."""

from __future__ import annotations

from nsq_tools.to_file.options import ToFileOptions
from nsqd_py.settings.program import Program

# Until messages of the topic are in flight.
_RUN = "run: until-command=\"curl -s '127.0.0.1:4151/stats?topic={}' | grep 'inflt: *[1-9]'\""

PROGRAM = Program(
    "nsq_to_file",
    "nsq-to-file",
    "Write the messages of topics to files. A message is finished only after it is synced to the disk, so a crash "
    "loses nothing, but can leave messages in the files twice. At the start, unfinished files of an earlier run are "
    "repaired and moved to their place. Each finished file has a line in _nsq_manifest in the output-dir. If the "
    "disk is full, it waits. SIGHUP finishes the current files.",
    ToFileOptions,
    examples=(
        (
            'All topics of a cluster that begin with "audit", compressed, in a directory each',
            "nsq-to-file --lookupd-http-address=127.0.0.1:4161 --topic-pattern='^audit' --compress=zstd "
            "--filename-format='<TOPIC>/<DATETIME>.<HOST><REV>.log' --output-dir=/var/archive",
            _RUN.format("audit_logins"),
        ),
        (
            "An archive for replays, in files of 256 MB, which appear in the directory when they are complete",
            "nsq-to-file --lookupd-http-address=127.0.0.1:4161 --topic=orders --format=framed --compress=zstd "
            "--rotate-size=268435456 --work-dir=/var/spool/nsq --output-dir=/mnt/archive --max-in-flight=5000",
            _RUN.format("orders"),
        ),
        (
            "Columns for analysis, a file every ten minutes",
            "nsq-to-file --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --format=parquet --compress=zstd "
            "--rotate-interval=10m --output-dir=/var/archive",
            _RUN.format("orders"),
        ),
    ),
)
