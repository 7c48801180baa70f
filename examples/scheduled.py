"""Deliver messages at a time of your choice, even in some weeks, and run a function every few seconds.

Start:  python examples/scheduled.py
Try:    python examples/scheduled.py 2 'call Ann'     deliver it in 2 seconds

nsqd keeps deferred messages on disk, so they survive restarts, and so does the schedule: its next occurrence is a message.
However many processes run this file, `count` runs once each time.
"""

import os
import sys

from nsqd_py.work import App

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
LONGEST_DEFER_S = float(os.environ.get("LONGEST_DEFER_S", "3600"))  # nsqd's --max-defer-timeout

app = App(name="reminders", nsqd_tcp_addresses=NSQD, longest_defer_s=LONGEST_DEFER_S)


@app.handler("reminders", channel="screen")
def show(text: str) -> None:
    print(text, flush=True)


@app.every(seconds=10)
def count() -> None:
    print("ten seconds are over", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        app.publish("reminders", sys.argv[2], defer_s=float(sys.argv[1]))
    else:
        app.run()
