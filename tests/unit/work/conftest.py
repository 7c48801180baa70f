from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_other_event_loop() -> Iterator[None]:
    """Hide the event loop that Playwright's sync API leaves in this thread: these tests run their own."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)
