"""The live table on a terminal.

One greenlet polls and another draws, so that keys and size changes take effect immediately.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.event import Event
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live

from nsq_tools.stat.checking import Watch
from nsq_tools.stat.clients import Clients, ask_for_clients
from nsq_tools.stat.failures import Failures
from nsq_tools.stat.model import Model, node_parts, total_depths
from nsq_tools.stat.options import StatOptions
from nsq_tools.stat.rows import Filter, Order, select_live
from nsq_tools.stat.screen.drawing import ScreenView, draw
from nsq_tools.stat.screen.keyboard import Keyboard
from nsq_tools.stat.screen.navigation import Navigation, TopicView
from nsq_tools.stat.screen.views import TopicFacts
from nsqd_py.cluster.admin_client import shown_address
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.runtime.command import wants_colour
from nsqd_py.runtime.logs.daemon_log import one_line
from nsqd_py.settings.durations import SECOND_NS, format_duration


@dataclass(eq=False)
class LiveTable:
    """The live table. It calls `stop` when the user quits."""

    _options: StatOptions
    _cluster: Cluster
    _model: Model
    _rounds: Iterable[Failures]
    _stop: Callable[[], None]
    _upstream: Upstream

    def __post_init__(self) -> None:
        options = self._options
        self._addresses = {shown_address(address): address for address in options.nsqd_http_address}
        self._filter = Filter(options.filter)
        self._interval_s = options.interval_ns / SECOND_NS
        self._navigation = Navigation(Order.parse(options.sort))
        self._watch = Watch(options, self._cluster)
        self._failures: Failures = ()
        self._clients: Clients | None = None  # of the topic that is open
        self._changed = Event()
        self._opened = Event()
        self._console = Console(no_color=not wants_colour(), highlight=False, force_terminal=True)

    def run(self) -> None:
        """Show the table until it is killed, or until it has shown --count reports."""
        with ExitStack() as stack:
            keyboard = Keyboard(self._on_key)
            stack.callback(keyboard.close)
            keyboard.open()
            screen = stack.enter_context(
                Live(
                    console=self._console,
                    screen=True,
                    auto_refresh=False,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
            )
            acts: dict[signal.Signals, Callable[[], None]] = {
                signal.SIGWINCH: self._changed.set,
                signal.SIGTSTP: lambda: self._suspend(keyboard, screen),
                signal.SIGQUIT: self._stop,
            }
            for number, act in acts.items():
                handler: Any = gevent.signal_handler(number, act)
                stack.callback(handler.cancel)
            asking = [gevent.spawn(self._ask), gevent.spawn(self._ask_clients)]
            for greenlet in asking:
                greenlet.link(lambda _: self._changed.set())
                stack.callback(greenlet.kill)
            while not any(greenlet.ready() for greenlet in asking):
                self._draw(screen)
                self._changed.wait()
                self._changed.clear()
            for greenlet in asking:
                if greenlet.ready():
                    greenlet.get()

    def _ask(self) -> None:
        for failures in self._rounds:
            self._failures = failures
            self._watch.note_round(time.monotonic(), time.time())
            self._changed.set()

    def _ask_clients(self) -> None:
        """Ask for the clients of the topic that is open, at the interval of the reports."""
        while True:
            topic = self._topic
            self._opened.clear()
            if topic is not None:
                nodes = {}
                for node, _ in self._cluster.parts_of(topic):
                    if not node.failure:
                        address = self._addresses.get(node.address, node.address)
                        nodes[address] = node.address
                clients = ask_for_clients(self._upstream, topic, nodes)
                if topic == self._topic:
                    self._clients = clients
                    self._changed.set()
            timeout_s = None if self._topic is None else self._interval_s
            self._opened.wait(timeout_s)

    @property
    def _topic(self) -> str | None:
        """The name of the topic that is open; None if there is none."""
        view = self._navigation.view
        topics = self._cluster.topics
        if not isinstance(view, TopicView):
            return None
        if view.topic in topics:
            return view.topic
        return next((name for name in topics if one_line(name) == view.topic), view.topic)

    # --- keys

    def _on_key(self, key: str) -> None:
        topic_before = self._topic
        self._navigation.press(key)
        if self._navigation.is_over:
            self._stop()
        if self._topic != topic_before:
            self._clients = None
            self._opened.set()
        self._changed.set()

    def _suspend(self, keyboard: Keyboard, screen: Live) -> None:
        """Ctrl-Z: restore the terminal, stop the process, and show the table again when it continues."""
        screen.stop()
        keyboard.close()
        os.kill(os.getpid(), signal.SIGSTOP)
        keyboard.open()
        screen.start()
        self._changed.set()

    # --- drawing

    def _draw(self, screen: Live) -> None:
        # Not from the environment, where COLUMNS stays the same when the size changes.
        size = os.get_terminal_size(sys.stdout.fileno())
        width = size.columns or 80
        height = size.lines or 24
        self._console.size = ConsoleDimensions(width, height)
        screen.update(Group(*draw(self._view(), width, height)), refresh=True)

    def _view(self) -> ScreenView:
        navigation = self._navigation
        return ScreenView(
            navigation=navigation,
            rows=select_live(self._model.rows, self._filter, navigation.filter, navigation.order),
            all_rows=self._model.rows,
            node_count=len(self._cluster.nodes),
            failures=self._failures,
            interval=format_duration(self._options.interval_ns),
            clock=time.strftime("%H:%M:%S"),
            problems=self._watch.problems,
            severities=self._watch.severities,
            topic=self._topic_facts(),
        )

    def _topic_facts(self) -> TopicFacts | None:
        topic = self._topic
        if topic is None:
            return None
        shown = one_line(topic)
        rows = [row for row in self._model.rows if row.name.topic == shown]
        return TopicFacts(
            name=shown,
            rows=rows,
            severities=self._watch.severities,
            problems=self._watch.of_topic(shown),
            depths=total_depths(rows),
            interval_s=self._interval_s,
            nodes=node_parts(self._cluster, topic),
            clients=self._clients,
            now_s=time.time(),
        )
