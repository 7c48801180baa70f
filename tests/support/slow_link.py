"""A network with latency and little bandwidth between a browser and a server: a TCP proxy in a thread."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

_PIECE_BYTES = 4096


class SlowLink:
    """Half of `round_trip_s` each way, one for the handshake; `bytes_a_second` down for all connections together."""

    def __init__(self, target_port: int, round_trip_s: float, bytes_a_second: int) -> None:
        self._target_port = target_port
        self._round_trip_s = round_trip_s
        self._bytes_a_second = bytes_a_second
        self._free_at = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self._round_trip_s)
        upstream, to_upstream = await asyncio.open_connection("127.0.0.1", self._target_port)
        await asyncio.gather(
            self._pump(reader, to_upstream, is_down=False), self._pump(upstream, writer, is_down=True), return_exceptions=True
        )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_down: bool) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.ensure_future(self._send(queue, writer))
        data = b"."
        while data:
            data = await reader.read(_PIECE_BYTES)
            at = self._loop.time()
            if is_down:
                at = self._free_at = max(self._free_at, at) + len(data) / self._bytes_a_second
            queue.put_nowait((at + self._round_trip_s / 2, data))
        await sending

    async def _send(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            at, data = await queue.get()
            await asyncio.sleep(at - self._loop.time())
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()
