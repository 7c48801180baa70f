"""Publish and consume in FastAPI, on its event loop.

Start:  pip install fastapi uvicorn
        cd examples
        uvicorn fastapi_app:app
Try:    curl -d '{"customer": "ann", "amount": 5}' -H 'content-type: application/json' http://127.0.0.1:8000/orders
        curl http://127.0.0.1:8000/totals
"""

import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from pydantic import BaseModel

from nsqd_py.client import Message
from nsqd_py.client.aio import Consumer, Producer

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")

totals: Counter[str] = Counter()


class Order(BaseModel):
    customer: str
    amount: int


async def handle(message: Message) -> None:
    order = json.loads(message.body)
    totals[order["customer"]] += order["amount"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect when the server starts, and finish what is in flight when it stops."""
    consumer = Consumer("orders", "totals", handle, nsqd_tcp_addresses=NSQD, max_in_flight=100)
    async with Producer(NSQD) as app.state.producer, consumer:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place_order(order: Order) -> None:
    await app.state.producer.publish("orders", order.model_dump_json().encode())


@app.get("/totals")
async def read_totals() -> dict[str, int]:
    return totals
