"""Closing the topics at the end of the process. A failure to write one of them is logged, and the others are closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd_py.broker.state_files import LogEnd, end_of
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.topic import Topic

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker


def close_topic(broker: Broker, topic: Topic) -> LogEnd | None:
    """Write and close a topic. Return the end of its log; None if something could not be written, or it has no log."""
    broker.log.info("TOPIC(%s): closing", topic.name)
    try:
        topic.close()
        saves = [_close_channel(broker, channel) for channel in topic.channels.values()]
        if topic.log is None:
            return None
        broker.save_held(topic)
        broker.removed_files.look_at_the_end(topic, topic.log)
        end = end_of(topic.log)
        topic.log.close()
    except OSError as error:
        broker.log.error("TOPIC(%s): failed to close - %s", topic.name, error)
        return None
    return end if all(saves) else None


def _close_channel(broker: Broker, channel: Channel) -> bool:
    """Return True if its position was written."""
    broker.log.info("CHANNEL(%s): closing", channel.name)
    is_saved = True
    try:
        channel.save_at_the_end()
    except OSError as error:
        broker.log.error("CHANNEL(%s): failed to write its position - %s", channel.name, error)
        is_saved = False
    return is_saved
