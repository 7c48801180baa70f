"""The state that the keys of the live table change: the view, the selected line, the filter and the order. Pure.

Views lie on top of each other: Enter and the letters of the help open one, Esc and q close it.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsq_tools.stat.rows import Order
from nsq_tools.stat.screen.cursor import Cursor, Scroll
from nsq_tools.stat.screen.keys import BACKSPACE, CLEAR, ENTER, ESCAPE


class TopicTable(Cursor):
    """The first view: the table of topics and channels. The key of a line is a pair of `Name` and nsqd."""


class ProblemTable(Cursor):
    """The problems. The key of a line is that of the `Problem`; `topics` has the topic of each, empty for none."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[str, str] = {}


class TopicView(Scroll):
    """One topic: its channels, nsqds and clients. `topic` is its name as the screen shows it."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic


class HelpView(Scroll):
    """The keys and colours."""


@dataclass
class Navigation:
    """The state of the live table.

    order      of topics and channels
    filter     the text of the filter, also while it is typed
    is_typing  True between `/` and Enter or Esc
    is_over    True if the user has quit
    """

    order: Order = Order()
    filter: str = ""
    is_typing: bool = False
    is_over: bool = False

    def __post_init__(self) -> None:
        self.table = TopicTable()
        self._above: list[Scroll] = []

    @property
    def view(self) -> Scroll:
        """The uppermost view."""
        if self._above:
            return self._above[-1]
        return self.table

    def press(self, key: str) -> None:
        if self.is_typing:
            self._type(key)
        elif self.view.press(key):
            return
        elif key in ("q", ESCAPE):
            self._leave(key)
        elif key == "p":
            self._open(ProblemTable())
        elif key in ("?", "h"):
            self._open(HelpView())
        elif key == ENTER:
            self._open_selected()
        elif self.view is self.table:
            self._press_in_table(key)

    def _press_in_table(self, key: str) -> None:
        if key == "/":
            self.is_typing = True
        elif key == "s":
            self._set_order(self.order.next)
        elif key == "r":
            self._set_order(self.order.turned)

    def _set_order(self, order: Order) -> None:
        self.order = order
        self.table.reset()

    # --- views

    def _open(self, view: Scroll) -> None:
        """Show a view. The same kind of view is never shown twice."""
        self._above = [other for other in self._above if type(other) is not type(view)] + [view]

    def _open_selected(self) -> None:
        view = self.view
        if isinstance(view, ProblemTable):
            topic = view.topics.get(str(view.key))
            if topic:
                self._open(TopicView(topic))
        elif isinstance(view, TopicTable) and isinstance(view.key, tuple):
            self._open(TopicView(view.key[0].topic))

    def _leave(self, key: str) -> None:
        if self._above:
            self._above.pop()
        elif key == "q":
            self.is_over = True
        else:
            self._set_filter("")

    # --- the filter

    def _type(self, key: str) -> None:
        if key == ENTER:
            self.is_typing = False
        elif key == ESCAPE or (key == BACKSPACE and not self.filter):
            self.is_typing = False
            self._set_filter("")
        elif key == BACKSPACE:
            self._set_filter(self.filter[:-1])
        elif key == CLEAR:
            self._set_filter("")
        elif len(key) == 1:
            self._set_filter(self.filter + key)
        else:
            self.table.press(key)

    def _set_filter(self, text: str) -> None:
        self.filter = text
        self.table.reset()
