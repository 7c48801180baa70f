"""Clients that their process closes at its end, and resets after a fork."""

from __future__ import annotations

from typing import Any

from nsqd_py.client.process import ProcessHooks, _Registry


class RacedRefs(dict[int, Any]):
    """References; when one of an object that is gone is looked up, another thread adds an object that got its id."""

    def __init__(self, refs: dict[int, Any], added: Any) -> None:
        super().__init__(refs)
        self._added = added

    def _let_the_other_run(self, key: int) -> None:
        if self._added is not None:
            self[key], self._added = self._added, None

    def get(self, key: int, default: Any = None) -> Any:
        found = super().get(key, default)
        self._let_the_other_run(key)
        return found

    def pop(self, key: int, default: Any = None) -> Any:
        self._let_the_other_run(key)
        return super().pop(key, default)


def test_an_object_that_another_thread_adds_stays_known() -> None:
    """It was not closed at the end of the process if it got the id of one that was being forgotten."""
    registry = _Registry()
    registry._most = 1
    gone, new, last = ProcessHooks(), ProcessHooks(), ProcessHooks()  # `last` must not get the id of `gone`
    registry.add(gone)
    del gone
    other = _Registry()
    other.add(new)
    registry._refs = RacedRefs(registry._refs, other._refs[id(new)])
    registry.add(last)
    assert {id(one) for one in registry} == {id(new), id(last)}
