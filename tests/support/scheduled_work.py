"""A program with schedules, which tests start and kill: `python -m tests.support.scheduled_work ADDRESS...`"""

from __future__ import annotations

import logging
import sys

from nsqd_py.work import App

app = App("clock", nsqd_tcp_addresses=sys.argv[1:])


@app.every(seconds=1)
def ones() -> None:
    """Do nothing: tests look at the jobs."""


@app.cron("*/2 * * * * *", tz="Europe/Zurich")
async def twos() -> None:
    """Do nothing, in an event loop."""


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    app.run(stop_timeout_s=5)
