"""A program whose mistakes a type checker sees. A comment `wrong` is on each line that it must name."""

from __future__ import annotations

from nsqd_py.work import App, Batch, Retry

app = App(nsqd_tcp_adress="127.0.0.1:4150")  # wrong
Retry(atempts=3)  # wrong
Retry(never=ValueError)  # wrong
Batch(most="10")  # wrong


@app.handler("orders", concurency=8)  # wrong
def bill(order: dict[str, int]) -> None: ...


@app.handler("orders", retry=3)  # wrong
def ship(order: dict[str, int]) -> None: ...


@app.handler("parcels")
def pack(order: dict[str, int]) -> None: ...


async def publish() -> None:
    pack("an order")  # wrong
    app.publish("orders", {}, defer="1h")  # wrong
    app.publish("orders", {}, at="tomorrow")  # wrong
