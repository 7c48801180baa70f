"""Sizes that both the command, which starts without pyarrow, and its tasks know."""

from __future__ import annotations

# Of the messages in an MPUB. nsqd takes what comes with one read of a socket at the least cost: twice as much in all
# costs it half as much again a message, 4 MiB three times as much.
BATCH_BYTES = 128 * 1024
