"""nsq-worker dead list, show, replay and discard: the dead letters of the app's handlers.

List and show read the logs of nsqds where they can. Replay and discard consume the dead letters. A replay publishes a message
to its topic before it finishes the dead letter: a kill in between makes it come twice, and loses nothing. All channels of the
topic get it, as with nsqadmin's requeue: a WARNING names those that have had it before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from nsq_tools.tail.rendering import for_terminal
from nsq_tools.worker.apps import load_app
from nsq_tools.worker.letters import Letter, WaitingLetters, http_addresses
from nsq_tools.worker.options import WorkerOptions
from nsq_tools.worker.words import DISCARD, LIST, REPLAY, SHOW, Task
from nsqd_py.client import Consumer, Message, Producer
from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.options import ClientOptions
from nsqd_py.cluster.access import HttpAccess, servers_in
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.protocol.names import dead_letter_topic
from nsqd_py.runtime.command import is_terminal
from nsqd_py.runtime.logs.daemon_log import WARNING, Log
from nsqd_py.settings.program import DONE, FAILED, ToolError
from nsqd_py.work.app import App
from nsqd_py.work.timed.later import later_topic
from nsqd_py.work.timed.scheduler import due_topic

# nsqadmin makes this channel in a dead-letter topic without one, too.
_CHANNEL = "nsqadmin"
# The default of nsqd's --max-rdy-count: so many messages are held while others are looked for.
_MOST_HELD = 2500
# Without a message for this time, no more wait.
_IDLE_S = 2.0
_HTTP_TIMEOUT_S = 5.0
_DONE_WORDS = {REPLAY: "replayed", DISCARD: "discarded"}


def settle_dead_letters(task: Task, options: WorkerOptions, log: Log) -> int:
    """Do what the task asks for, in all dead-letter topics. Raises ToolError."""
    app = load_app(task.app)
    quiet = Log(options.log_prefix, max(options.log_level, WARNING), form=options.log_format)
    try:
        letters = DeadLetters(app, options, log, quiet)
        if task.verb == LIST:
            return letters.print_list()
        if task.verb == SHOW:
            return letters.show(task.rest)
        return letters.settle(task.verb, task.rest)
    except NsqClientError as error:
        raise ToolError(str(error)) from error


class DeadLetters:
    """The dead letters of an app."""

    def __init__(self, app: App, options: WorkerOptions, log: Log, quiet: Log) -> None:
        """`quiet` is the log of the clients."""
        handled = {handler.topic for handler in app.handlers}
        # Also without schedules: some may have been removed, and other programs publish with long delays.
        topics = {
            dead_letter_topic(topic) for topic in (*handled, due_topic(app.name), later_topic(app.name))
        }
        self._app = app
        self._options = options
        self._log = log
        self._quiet = quiet
        self._replayed_topics: set[str] = set()
        self._topics = options.topic or tuple(sorted(topics))
        self._waiting = self._over_http()

    def _over_http(self) -> WaitingLetters | None:
        """Return what reads dead letters over HTTP; None if the HTTP addresses of the nsqds are not known."""
        nsqds, lookupds = self._app.addresses
        addresses = self._options.nsqd_http_address
        access = HttpAccess(
            self._app.client_settings["options"] or ClientOptions(),
            named=servers_in([*addresses, *lookupds]),
            timeout_s=_HTTP_TIMEOUT_S,
        )
        try:
            found = addresses or http_addresses(access, nsqds, lookupds)
        except UpstreamError as error:
            self._log.warning("%s; give --nsqd-http-address", error)
            return None
        return WaitingLetters(access, found)

    # ---- looking

    def print_list(self) -> int:
        """Print a line for each dead letter."""
        for topic in self._topics:
            for letter in self._letters(topic, self._options.n):
                print(letter.line())
        return DONE

    def show(self, ids: Sequence[str]) -> int:
        """Print the headers to standard error and the bodies to standard output, each followed by a line feed."""
        missing = dict.fromkeys(ids)
        for topic in self._topics:
            for letter in self._letters(topic, None):
                if letter.id in missing:
                    del missing[letter.id]
                    _show(letter)
        return self._end(missing)

    def _letters(self, topic: str, most: int | None) -> list[Letter]:
        """Return the dead letters that wait in a topic. Raises ToolError."""
        if self._waiting is not None:
            try:
                return self._waiting.latest(topic, most)
            except UpstreamError as error:
                self._log.warning("%s; consuming and requeueing the dead letters instead", error)
        channel = self._channel_of(topic)
        if not channel:
            return []
        with Held(self._app, topic, channel, self._quiet) as held:
            return [_letter_of(message) for message in held.received()][-(most or 0) :]

    def _channel_of(self, topic: str) -> str:
        """Return the channel to take the dead letters of a topic from; "" if the topic does not exist. Raises ToolError."""
        if self._options.channel:
            return self._options.channel
        if self._waiting is None:
            return _CHANNEL
        try:
            channels = self._waiting.channels(topic)
        except UpstreamError as error:
            raise ToolError(f"{error}: give --channel") from error
        if channels is None:
            return ""
        if len(channels) > 1:
            raise ToolError(
                f"{topic} has the channels {', '.join(sorted(channels))}: choose one with --channel"
            )
        return next(iter(channels), _CHANNEL)

    # ---- replay and discard

    def settle(self, verb: str, ids: Sequence[str]) -> int:
        """Replay or discard the dead letters with these ids; without ids, all that wait now. Raises ToolError."""
        missing = dict.fromkeys(ids)
        count = 0
        with Producer(**self._app.client_settings | {"log": self._quiet}) as producer:
            for topic in self._topics:
                for message in self._chosen(topic, missing, is_all=not ids):
                    if verb == REPLAY:
                        self._replay(producer, _letter_of(message))
                    message.finish()
                    missing.pop(message.id.decode("latin-1"), None)
                    count += 1
        self._log.info("%s %d %s", _DONE_WORDS[verb], count, "dead letter" if count == 1 else "dead letters")
        return self._end(missing)

    def _replay(self, producer: Producer, letter: Letter) -> None:
        """Publish the message to its topic. Raises as `_target_of` and `Producer.publish`."""
        topic = self._target_of(letter)
        if topic not in self._replayed_topics:
            self._replayed_topics.add(topic)
            self._warn_of_channels(topic, letter.headers.get("channel", ""))
        producer.publish(topic, letter.to_publish)

    def _warn_of_channels(self, topic: str, channel: str) -> None:
        """Warn if channels that did not give the message up get it again. `channel` is the one that did, or "" if not known."""
        if self._waiting is None:
            return
        try:
            channels = self._waiting.channels(topic) or set()
        except UpstreamError as error:
            self._log.warning("%s: it is not known which channels of %s get what is replayed", error, topic)
            return
        others = ", ".join(sorted(channels - {channel}))
        if channel and others:
            self._log.warning(
                "what is replayed goes to all channels of %s: not only %s, whose dead letter it is, but also %s",
                topic,
                channel,
                others,
            )
        elif len(channels) > 1:
            self._log.warning("what is replayed goes to all channels of %s: %s", topic, others)

    def _chosen(self, topic: str, missing: dict[str, None], *, is_all: bool) -> Iterator[Message]:
        """Yield the dead letters of a topic to replay or discard."""
        channel = self._channel_of(topic)
        if not channel or not (missing or is_all):
            return
        began_ns = time.time_ns()  # what a replay makes die again is left
        with Held(self._app, topic, channel, self._quiet) as held:
            for message in held.received():
                if message.timestamp_ns <= began_ns if is_all else message.id.decode("latin-1") in missing:
                    yield message
                if not (missing or is_all):
                    return

    def _target_of(self, letter: Letter) -> str:
        """Return the topic that a message comes from. Raises ToolError if it is not known."""
        if "topic" in letter.headers:
            return letter.headers["topic"]
        topics = {handler.topic for handler in self._app.handlers}
        (*others, topic) = sorted(topic for topic in topics if dead_letter_topic(topic) == letter.topic) or [
            "",
            "",
        ]
        if others:
            raise ToolError(
                f"the topic of dead letter {letter.id} of {letter.topic} is not known, since no handler of the app has it: "
                "requeue it in nsqadmin"
            )
        return topic

    def _end(self, missing: dict[str, None]) -> int:
        if missing:
            self._log.error("no such dead letter waits: %s", ", ".join(missing))
        return FAILED if missing else DONE


class Held:
    """The messages of a dead-letter topic, as a consumer gets them. Those that are not answered come again at its end."""

    def __init__(self, app: App, topic: str, channel: str, log: Log) -> None:
        self._held: list[Message] = []
        self._consumer = Consumer(
            topic, channel, max_in_flight=_MOST_HELD, max_attempts=0, **app.client_settings | {"log": log}
        )

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        for message in self._held:
            if message.is_live and not message.is_answered:
                message.requeue(0, backoff=False)
        self._consumer.stop()

    def received(self) -> Iterator[Message]:
        """Yield messages until none has come for a while, or too many are held. Raises ToolError without an nsqd."""
        while len(self._held) < _MOST_HELD and (message := self._consumer.next(_IDLE_S)) is not None:
            message.detach()
            self._held.append(message)
            yield message
            if message.is_answered:
                self._held.pop()
        if not self._consumer.stats().connections:
            raise ToolError(
                f"no nsqd that has {self._consumer.topic} can be reached; nsq-worker check says why"
            )


def _letter_of(message: Message) -> Letter:
    return Letter.of(message.id, message.topic, message.timestamp_ns, message.body)


def _show(letter: Letter) -> None:
    headers = {"id of the dead letter": letter.id, "dead-letter topic": letter.topic, **letter.headers}
    for name, text in headers.items():
        print(f"{name}: {text}", file=sys.stderr)
    sys.stderr.flush()
    sys.stdout.flush()
    if is_terminal(sys.stdout):
        body = for_terminal(letter.body)
    else:
        body = letter.body
    sys.stdout.buffer.write(body + b"\n")
