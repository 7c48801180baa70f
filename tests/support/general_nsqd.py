"""nsqd without `nsqd_py/tcp/fast_publishing.py`, which cannot be imported: every command takes the general path."""

import sys
from types import ModuleType

from nsqd_py.tcp.connection import ClientConnection

GENERAL_NSQD = f"{sys.executable} -m {__name__}"


def _replace_shortcut() -> None:
    stand_in = ModuleType("nsqd_py.tcp.fast_publishing")
    stand_in.__dict__["FastConnection"] = ClientConnection
    sys.modules[stand_in.__name__] = stand_in


if __name__ == "__main__":
    from nsq_apps.nsqd import main

    _replace_shortcut()
    sys.exit(main())
