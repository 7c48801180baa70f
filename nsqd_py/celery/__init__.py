"""A transport of kombu: Celery, and programs on kombu alone, use nsqds as their broker.

    import nsqd_py.celery                                        # makes the scheme nsq:// known to kombu
    app = Celery("shop", broker="nsq://10.0.0.1:4150,10.0.0.2:4150")

Without the import, name the transport: `broker_transport = "nsqd_py.celery:Transport"` next to `broker_url`. kombu accepts no
dotted path as the scheme of a URL. With nsqlookupds, the URL is `nsq://?lookupd_http_address=10.0.0.1:4161`.

A queue is a topic with one channel (`celery`). A queue that is deleted with its consumer (`auto_delete`: remote control,
events, results by `rpc://`) is an ephemeral channel: of the ephemeral topic of its exchange, whose other messages it drops,
or of an ephemeral topic with its own name. Exchanges and bindings are not on the server: publishers know them from the settings.

A task with an ETA is deferred on the server. It comes a second before its time at the earliest; a worker gets it then.

A delivery is known by the tag that the publisher gave it. When an nsqd crashes, it delivers again what was in flight, and what
was finished in the moment before: the first kind belongs to the delivery that the worker has already, the second kind is
finished again. So a crash of nsqd alone does not run a task twice in the same worker.

settings    the broker URL and `broker_transport_options`; the topic of a queue
payloads    what a body says about a task: its ETA, its tag
deliveries  where messages come from, and which are not answered
pump        the thread that receives them
channel     queues, exchanges and consumers, as kombu asks for them
servers     depths, purges and deletions, over HTTP
transport   the connection of kombu, which has one of each

Threads
Pump  its thread steps the consumers; others add sources, read `arrived` and `failure`, and wake its pollers. Once it stops, it
    gives back what has arrived: each message is taken from `arrived` in one call of a deque
Source.is_cancelled  set once, by the thread of the transport, and read by the pump
"""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES

from nsqd_py.celery.channel import NsqChannel, QoS, QueueTraits
from nsqd_py.celery.deliveries import Deliveries, Delivery, QueueConsumer, Source
from nsqd_py.celery.payloads import eta_of
from nsqd_py.celery.pump import Pump, PumpFailed
from nsqd_py.celery.servers import Servers
from nsqd_py.celery.settings import Settings, nsq_name
from nsqd_py.celery.transport import Transport

SCHEME = "nsq"

__all__ = [
    "SCHEME",
    "Deliveries",
    "Delivery",
    "NsqChannel",
    "Pump",
    "PumpFailed",
    "QoS",
    "QueueConsumer",
    "QueueTraits",
    "Servers",
    "Settings",
    "Source",
    "Transport",
    "eta_of",
    "nsq_name",
]

TRANSPORT_ALIASES[SCHEME] = "nsqd_py.celery:Transport"
