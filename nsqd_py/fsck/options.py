"""The settings with which nsqd checks a data directory instead of serving."""

from __future__ import annotations

from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.types import BOOL, STRING, choice

TEXT = "text"
JSON = "json"

# fmt: off
class CheckOptions(Options, title="Looking at a data directory"):
    """The settings of --check-data."""

    check_data: str = setting(STRING, "",
        "Say what this data directory holds and whether it is damaged, and exit: 0 when all is well, 1 when not. "
        "No nsqd may be using it.", config_key="")
    repair: bool = setting(BOOL, False,
        "With --check-data: copy what is damaged into its folder `damaged`, and make the rest whole.", config_key="")
    check_format: str = setting(choice({TEXT: TEXT, JSON: JSON}, word="format"), TEXT,
        "Form of what --check-data says: text, or json.", config_key="")
# fmt: on
