"""Sizes that both the command, which starts without pyarrow, and its tasks know."""

from __future__ import annotations

# Of the messages in an MPUB. With 128 KiB, a third of the processor time of nsqd is saved, and half as much again is
# spent in tasks: so it is a little faster where both share a machine, and slower where they do not.
BATCH_BYTES = 512 * 1024
