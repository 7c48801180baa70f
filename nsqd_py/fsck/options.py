"""The settings of nsqd that have it look at a data directory in place of serving."""

from __future__ import annotations

from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.types import BOOL, STRING, choice

TEXT = "text"
JSON = "json"

# fmt: off
CHECK_SETTINGS = (
    Setting("check-data", STRING, "",
        "Say what this data directory holds and whether it is damaged, and exit: 0 when all is well, 1 when not. "
        "No nsqd may be using it.", config_key=""),
    Setting("repair", BOOL, False,
        "With --check-data: copy what is damaged into its folder `damaged`, and make the rest whole.", config_key=""),
    Setting("check-format", choice({TEXT: TEXT, JSON: JSON}, word="format"), TEXT,
        "Form of what --check-data says: text, or json.", config_key=""),
)
# fmt: on
