"""The settings that every server of NSQ has for its log."""

from __future__ import annotations

from nsqd_py.runtime.logs import INFO, TEXT
from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.types import BOOL, LOG_FORMAT, LOG_LEVEL, STRING

# fmt: off
VERBOSE_SETTING = Setting("verbose", BOOL, False, "Deprecated, without effect: use --log-level.", config_key="")


def log_settings(prefix: str) -> tuple[Setting, ...]:
    return (
        Setting("log-level", LOG_LEVEL, INFO,
            "Write log lines of this level and above: debug, info, warn, error, fatal."),
        Setting("log-format", LOG_FORMAT, TEXT,
            "Form of the log on stderr: text (lines as Go's NSQ writes them), or json (an object a line)."),
        Setting("log-prefix", STRING, prefix, "What every log line begins with."),
    )
