"""Collect messages for some seconds, and write each collection to a Parquet file with Polars.

Start:  pip install polars
        python examples/batches_to_polars.py
Try:    seq 1000 | sed 's/.*/{"customer": "c&", "amount": &}/' |
            to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150
        python -c 'import polars; print(polars.read_parquet("parquet/*.parquet"))'

Messages are finished after their file is on disk. The client touches those that wait, so they do not time out.
"""

import os
import time
import uuid
from pathlib import Path
from queue import SimpleQueue

import polars

from nsqd_py.client import Consumer, MessageBatch

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
FOLDER = Path(os.environ.get("FOLDER", "parquet"))
SECONDS = float(os.environ.get("SECONDS", "5"))
MESSAGES = 50_000  # of a file, at most
SCHEMA = {"customer": polars.String, "amount": polars.Int64}

collected: SimpleQueue[MessageBatch] = SimpleQueue()


def write() -> None:
    """Write what was collected to a file that appears when it is complete, and finish the messages."""
    batches = [collected.get() for _ in range(collected.qsize())]
    if not batches:
        return
    lines = b"\n".join(body for batch in batches for body in batch.bodies)
    path = FOLDER / f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:8]}.parquet"
    polars.read_ndjson(lines, schema=SCHEMA).write_parquet(path.with_suffix(".tmp"))
    path.with_suffix(".tmp").rename(path)
    for batch in batches:
        batch.finish()
    print("wrote", path.name, flush=True)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    consumer = Consumer(
        "orders", "parquet", batch_handler=collected.put, nsqd_tcp_addresses=NSQD, max_in_flight=MESSAGES
    )
    try:
        consumer.start()
        while True:
            time.sleep(SECONDS)
            write()
    except KeyboardInterrupt:
        pass
    finally:
        write()
        consumer.stop(timeout_s=1)  # what came in the meantime is not finished, and comes again


if __name__ == "__main__":
    main()
