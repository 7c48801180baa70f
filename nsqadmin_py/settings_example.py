"""`python -m nsqadmin_py.settings_example toml` prints contrib/config/nsqadmin.toml; so with yaml."""

from __future__ import annotations

from nsqadmin_py.options import NSQADMIN
from nsqd_py.settings.example import main

COMMAND = "python -m nsqadmin_py.settings_example"

if __name__ == "__main__":
    main(NSQADMIN, COMMAND)
