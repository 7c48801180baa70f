"""`python -m nsqlookupd_py.settings_example toml` prints contrib/config/nsqlookupd.toml; so with yaml."""

from __future__ import annotations

from nsqd_py.settings.example import main
from nsqlookupd_py.options import NSQLOOKUPD

COMMAND = "python -m nsqlookupd_py.settings_example"

if __name__ == "__main__":
    main(NSQLOOKUPD, COMMAND)
