"""What is fuzzed. A target takes any bytes, and raises where there is a bug."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path

import httptools
import orjson

from nsqadmin_py import go_json
from nsqadmin_py.cluster import node_views, views
from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.refusals import RequestRefused
from nsqadmin_py.web.answers import object_in, text_of
from nsqd_py.auth.permissions import BadAuthAnswer, compile_rules, read_answer
from nsqd_py.broker.metadata import read_metadata
from nsqd_py.cluster import producers
from nsqd_py.cluster.admin_client import UpstreamError, parsed
from nsqd_py.cluster.model import BadStats, Cluster
from nsqd_py.cluster.values import rows_in
from nsqd_py.diskqueue.journals import journal as journal_module
from nsqd_py.diskqueue.journals.epochs import Epoch
from nsqd_py.diskqueue.journals.journal import CHANGE, DELETED, SNAPSHOT, encode_entry, read_journal
from nsqd_py.diskqueue.messages import decode_messages, record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader, Incomplete, NewerFormat, decode
from nsqd_py.errors import ClientError, LayerError, LineTooLong, NsqdError, StartError
from nsqd_py.feed import codec
from nsqd_py.feed.lag import Lag
from nsqd_py.feed.pieces import Begin, Commit, OfferedFile, OfferedLog, Part, TopicListing, Write
from nsqd_py.go_import.go_queue import find_go_queues
from nsqd_py.net.http.guard import parse_credentials, parse_login, split_authorization
from nsqd_py.net.http.handling import Head, Refused
from nsqd_py.net.http.router import BadQuery, parse_query
from nsqd_py.net.layers import DeflateLayer, Layer
from nsqd_py.net.snappy import SnappyLayer
from nsqd_py.protocol import commands
from nsqd_py.protocol.parser import CommandParser
from nsqd_py.protocol.session import STATE_SUBSCRIBED, Limits, Session
from nsqd_py.settings.durations import parse_duration, parse_time
from nsqd_py.standby import messages as standby
from nsqd_py.standby.copies.copy import Copy
from nsqd_py.standby.copies.data_path import check_name
from nsqd_py.store import rounds
from nsqd_py.store.image import StoreImage
from nsqd_py.store.layout import BadObject, StoredFile
from nsqd_py.store.layout import Head as StoreHead
from nsqd_py.store.rounds import RoundObject
from nsqlookupd_py.protocol import LookupParser
from tests.fuzz.log_target import log_file
from tests.fuzz.table import TARGETS, target
from tests.support import wire
from tests.support.standby_frames import file_frame, listed_frame, topic_frame
from tests.support.standby_link import apply_to

__all__ = ["TARGETS", "log_file"]

# What is decoded of one input must not be more than this many times its size, and this.
_MOST_OUT_BYTES = 64 * 1024 * 1024


# ---- what clients say to nsqd


_COMMANDS = (
    wire.identify(client_id="x", heartbeat_interval=-1),
    wire.sub("t", "c"),
    wire.rdy(5),
    wire.fin(wire.UNKNOWN_ID) * 3,
    wire.req(wire.UNKNOWN_ID, 5),
    wire.touch(wire.UNKNOWN_ID),
    b"CLS\n",
    wire.NOP,
    wire.pub("t", b"x") * 3,
    wire.mpub("t", [b"a", b"bb"]),
    wire.dpub("t", 5, b"x"),
    wire.auth(b"secret"),
)


@target(*_COMMANDS, b"".join(_COMMANDS))
def parser(data: bytes) -> None:
    """The same commands, whatever the pieces; the first byte says which."""
    step = max(1, data[0]) if data else 1
    assert _commands([data]) == _commands([data[low : low + step] for low in range(0, len(data), step)])


def _commands(pieces: list[bytes]) -> list[object]:
    session = Session(Limits(max_msg_size=1000, max_body_size=5000, auth_required=True))
    one, found = CommandParser(session), []
    for piece in pieces:
        one.feed(piece)
        try:
            while (command := one.next_command()) is not None:
                found += _unbundled(command)
                if isinstance(command, commands.Sub):
                    session.state = STATE_SUBSCRIBED
                elif isinstance(command, commands.Identify):
                    session.identify(command.body)
        except ClientError as error:
            return [*found, error.wire]
        except LineTooLong:
            return [*found, "line"]
    return found


def _unbundled(command: commands.Command) -> list[object]:
    """Rows of FINs and PUBs are one command where they come together."""
    if isinstance(command, commands.Fin):
        return list(command.message_ids)
    if isinstance(command, commands.Publish) and command.kind != commands.MPUB:
        body, found = command.body, []
        while body:
            size = 4 + int.from_bytes(body[:4], "big")
            found.append((command.kind, command.topic_name, body[:size], command.defer_ns))
            body = body[size:]
        return list(found)
    return [command]


@target(
    b'{"client_id":"x","hostname":"h","deflate":true,"snappy":true,"msg_timeout":5000,"sample_rate":9}',
    b"null",
)
def identify(data: bytes) -> None:
    session = Session(Limits())
    with suppress(ClientError):
        orjson.loads(session.identify(data).removeprefix(b"OK") or b"0")
    orjson.dumps([session.client_id, session.hostname, session.user_agent])


def _decode(layer: Layer, data: bytes) -> None:
    size = 0
    with suppress(LayerError):
        size += len(layer.decode(data))
        while layer.has_more and size < _MOST_OUT_BYTES:
            piece = len(layer.decode(b""))
            assert piece <= 1 << 20
            size += piece


@target(SnappyLayer().encode(b"NOP\n" * 50), SnappyLayer().encode(bytes(100_000)))
def snappy(data: bytes) -> None:
    _decode(SnappyLayer(), data)


@target(DeflateLayer(6).encode(b"NOP\n" * 50), DeflateLayer(6).encode(bytes(1_000_000)))
def deflate(data: bytes) -> None:
    _decode(DeflateLayer(6), data)


# ---- what a standby and its primary say to each other

_LOG_NAME = "t.00000000000000000000.log"
_TOPIC = topic_frame(TopicListing("t", (Epoch(100, 0),), 5, {_LOG_NAME: 0}, ["t:c.cursor"]))
_OFFERED = OfferedLog((Epoch(100, 0),), {_LOG_NAME: OfferedFile(1, 2, 3)})


def _framed_messages(*frames: bytes) -> bytes:
    """Messages with their lengths before them."""
    return b"".join((len(frame) - 8).to_bytes(2, "big") + frame[8:] for frame in frames)


@target(
    _framed_messages(
        topic_frame(TopicListing("t")),
        listed_frame(),
        file_frame(codec.WRITE, _LOG_NAME, 0, FileHeader(1, 0, 0).encode()),
        file_frame(codec.BEGIN, "nsqd.dat"),
        file_frame(codec.PART, "nsqd.dat", 0, b"{}"),
        file_frame(codec.COMMIT, "nsqd.dat"),
        file_frame(codec.REMOVE, _LOG_NAME),
        standby.round_frame(1, Lag()),
    ),
    _framed_messages(_TOPIC, listed_frame(), file_frame(codec.COMMIT, _LOG_NAME)),
)
def standby_stream(data: bytes) -> None:
    """A primary may say anything: no file with other names appears, and each error is a sentence."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        copy = Copy(directory, "now", was_primary=bool(len(data) % 2))
        (directory / _LOG_NAME).write_bytes(FileHeader(1, 0, 0).encode())
        copy.read()
        with suppress(NsqdError):
            while data:
                size, data = int.from_bytes(data[:2], "big"), data[2:]
                message, data = data[:size], data[size:]
                apply_to(copy, message)
        copy.close()
        for path in directory.iterdir():
            if not path.name.startswith("standby-"):
                check_name(path.name)


@target(
    standby.encode_offer(standby.Offer(1, "h:1", {"t": _OFFERED}), 999),
    standby.encode_offer(standby.Offer(1, fenced_by="h:1"), 999),
)
def standby_offer(data: bytes) -> None:
    with suppress(standby.BadStandbyMessage):
        standby.encode_offer(standby.decode_offer(data), 1 << 20)


# ---- what is in a store

_STORED = StoredFile("t", 0, 1, 64, 3, True, 5, 1, 5, 1, 5, 1)
_ROUND = RoundObject(
    1,
    1,
    "00" * 8,
    0,
    rounds.BASE | rounds.MARK,
    b"".join(
        (
            rounds.files_frame([_STORED], ["files/t/gone.log"]),
            rounds.piece_frame(TopicListing("t", (Epoch(100, 0),), 5, {_LOG_NAME: 64}, ["t:c.cursor"])),
            rounds.piece_frame(Write(_LOG_NAME, 64, b"record")),
            rounds.piece_frame(Begin("t:c.cursor")),
            rounds.piece_frame(Part("t:c.cursor", 0, b"entry")),
            rounds.piece_frame(Commit("t:c.cursor")),
            rounds.piece_frame(Write(_LOG_NAME, 0, FileHeader(1, 0, 0).encode())),
        )
    ),
)


@target(_ROUND.encode(), _ROUND.payload)
def store_round(data: bytes) -> None:
    """A round may have anything, also with a right checksum: each error is a sentence that names the object."""
    image = StoreImage()
    for made in (data, _ROUND._replace(payload=data).encode()):
        try:
            image.apply(rounds.decode(1, made))
        except BadObject as error:
            assert str(error).startswith("rounds/0000000000000001 ")
    for topic in image.files.keys() | {"t"}:
        image.log_files(topic)


@target(StoreHead("ab" * 8, 1, "00" * 8, "a:4150", 3).encode())
def store_head(data: bytes) -> None:
    with suppress(BadObject):
        StoreHead.decode(data)


# ---- HTTP


class _Heads:
    """What the HTTP server makes of the parser's events."""

    def __init__(self) -> None:
        self.head = Head()

    def on_url(self, url: bytes) -> None:
        self.head.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head.add(name, value)


@target(
    b"POST /pub?topic=t&defer=5 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"GET /stats?format=json&x=%zz;y HTTP/1.0\r\nAuthorization: Basic YTpi\r\n\r\n",
    b"PUT /config/log_level HTTP/1.1\r\nHost: [::1]:5\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
)
def http(data: bytes) -> None:
    heads = _Heads()
    with suppress(
        httptools.HttpParserError, httptools.HttpParserUpgrade, Refused, BadQuery, UnicodeDecodeError
    ):
        one = httptools.HttpRequestParser(heads)
        one.feed_data(data)
    head = heads.head
    with suppress(Refused):
        head.check()
    with suppress(BadQuery):
        for text in parse_query(head.url.partition(b"?")[2]).values():
            for parse in (parse_duration, lambda text: parse_time(text, 10**18)):
                with suppress(ValueError):
                    parse(text)
    _, secret = split_authorization(head.fields.get(b"authorization", b""))
    parse_login(secret)


@target(b"user:$2b$05$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234\ntoken:name:" + b"a" * 64)
def auth_file(data: bytes) -> None:
    with suppress(StartError):
        parse_credentials(data, "file")


@target(
    b'{"ttl":60,"authorizations":[{"topic":"^t$","channels":[".*"],"permissions":["publish","subscribe"]}]}'
)
def auth_answer(data: bytes) -> None:
    with suppress(BadAuthAnswer, ValueError):
        for rule in compile_rules(read_answer(orjson.loads(data)).grants):
            rule.permits(b"t", b"c")


# ---- nsqlookupd


@target(b"IDENTIFY\n\x00\x00\x00\x02{}REGISTER t c\nPING\nUNREGISTER t\n", b"PING\r\n")
def lookupd(data: bytes) -> None:
    one = LookupParser()
    step = max(1, data[0]) if data else 1
    with suppress(ClientError):
        for low in range(0, len(data), step):
            one.feed(data[low : low + step])
            while (words := one.next_line()) is not None:
                if words[0] == "IDENTIFY" and one.next_body() is None:
                    break


# ---- files


def _framed() -> bytes:
    from tests.support.archives import framed, messages

    return framed([messages(3), messages(2, 100)])


@target(_framed(), FileHeader(1, 0, 0).encode())
def records(data: bytes) -> None:
    with suppress(Damaged, Incomplete):
        salt = FileHeader.decode(data[:FILE_HEADER_BYTES]).salt
        for position, _ in record_positions(data, FILE_HEADER_BYTES, salt):
            for read in (decode_messages, decode):
                with suppress(Damaged, Incomplete):
                    read(data, position, salt)


@target(b"\x01" + b"\x05" * 60, b"\x02" + bytes(range(60)))
def journal(data: bytes) -> None:
    """The bytes as they are, and as the numbers of an entry whose checksum is right."""
    journal_module.MOST_WAITING = 1 << 10  # larger entries take 20 ms each, and find nothing more
    with suppress(NewerFormat):
        read_journal(data)
    numbers = [int.from_bytes(data[low : low + 8], "little") for low in range(0, len(data) // 8 * 8, 8)]
    ranges = list(zip(numbers[::2], numbers[1::2], strict=False))
    waits = [(low, high, 0, 1) for low, high in ranges[1:]]
    kind = (SNAPSHOT, CHANGE, DELETED)[len(data) % 3]
    read_journal(encode_entry(kind, numbers[0] if numbers else 0, ranges, waits)).saved.forget_finished()


@target(b'{"topics":[{"name":"t","paused":true,"channels":[{"name":"c","paused":false}]}],"version":"1.3.0"}')
def metadata(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "nsqd.dat")
        path.write_bytes(data)
        with suppress(StartError):
            read_metadata(path)


def _go_file() -> bytes:
    from tests.support.archives import go_message, messages

    return b"".join(map(go_message, messages(3)))


@target(b"2\n0,0\n0,150\n|" + _go_file(), b"|" + _go_file())
def go_queue(data: bytes) -> None:
    """The position of the queue, and its file, apart by the first `|`."""
    position, _, messages = data.partition(b"|")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "t.diskqueue.meta.dat").write_bytes(position)
        Path(directory, "t.diskqueue.000000.dat").write_bytes(messages)
        for queue in find_go_queues(Path(directory)):
            for _ in queue.blocks(lambda damage: None):
                pass


def _archive(name: str, data: bytes) -> None:
    from nsq_spark.archive.splits import ArchiveError, Damage, DamagedArchive
    from tests.support.archives import read_messages, splits_of

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.write_bytes(data)
        with suppress(ArchiveError, DamagedArchive, OSError):
            read_messages(splits_of(path), None, Damage("skip"))


@target(_framed())
def archive_framed(data: bytes) -> None:
    _archive("a.framed", data)


@target(b'{"topic":"t","body":"x","timestamp":5}\n{"body_base64":"eA==","id":"a","attempts":1}\n')
def archive_jsonl(data: bytes) -> None:
    _archive("a.jsonl", data)


@target(b"one\ntwo\n")
def archive_lines(data: bytes) -> None:
    _archive("a.log", data)


def _parquet() -> bytes:
    """Return a file of two rows. pyarrow imports pandas for it."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table({"body": [b"x", b"y"], "topic": ["t", "u"], "timestamp": [1, 2]}), file)
    return file.getvalue()


@target(_parquet)
def archive_parquet(data: bytes) -> None:
    _archive("a.parquet", data)


# ---- nsqadmin


_STATS = json.dumps(
    {
        "version": "1.3.0",
        "health": "OK",
        "start_time": 1,
        "topics": [
            {
                "topic_name": "t",
                "depth": 1,
                "backend_depth": 0,
                "message_count": 5,
                "paused": False,
                "e2e_processing_latency": {"count": 1, "percentiles": [{"quantile": 0.9, "value": 5.0}]},
                "channels": [
                    {
                        "channel_name": "c",
                        "depth": 1,
                        "backend_depth": 0,
                        "in_flight_count": 0,
                        "deferred_count": 0,
                        "message_count": 5,
                        "requeue_count": 0,
                        "timeout_count": 0,
                        "client_count": 1,
                        "paused": False,
                        "clients": [
                            {"client_id": "x", "hostname": "h", "remote_address": "a:1", "connect_ts": 5}
                        ],
                        "e2e_processing_latency": None,
                    }
                ],
            }
        ],
    },
    separators=(",", ":"),
).encode()


@target(_STATS)
def admin_stats(data: bytes) -> None:
    """An nsqd answers this twice, and the right thing before and after."""
    cluster = Cluster()
    for second, body in enumerate((_STATS, data, data, _STATS)):
        node = cluster.add_node("a", {})
        with suppress(UpstreamError, BadStats, ValueError):
            for _ in cluster.observing(node, parsed(node.address, body), 10.0 + 2 * second):
                pass
        list(cluster.ending_round(10.0 + 2 * second, 2.0))
        cluster.tick += 1
        findings = Findings()
        nodes = node_views.nodes(cluster, 20.0, findings.memory)
        orjson.dumps([views.overview(cluster, 20.0, findings).head, nodes.rows])
        for name in cluster.topics:
            orjson.dumps(views.topic(cluster, name, 20.0, findings).rows)
    assert cluster.topics.keys() == {"t"}
    with suppress(ValueError):
        document = orjson.loads(data)
        producer = producers.producer({"broadcast_address": "h"})
        rows = [go_json.topic_stats(row, "a", producer, 5.0) for row in rows_in(document, "topics")]
        orjson.dumps(go_json.without_empty_counts(go_json.sum_of_topics("t", rows), is_channel=False))


@target(
    b'{"producers":[{"broadcast_address":"h","http_port":1,"tcp_port":2,"version":"1.3.0","topics":["t"]}]}'
)
def admin_nodes(data: bytes) -> None:
    with suppress(ValueError):
        nodes = [producers.producer(row) for row in rows_in(orjson.loads(data), "producers")]
        orjson.dumps(producers.merged_producers({"lookup": nodes, "other": [dict(node) for node in nodes]}))


@target(b'{"action":"create","topic":"t","channel":"c"}')
def admin_body(data: bytes) -> None:
    from io import BytesIO

    from werkzeug.wrappers import Request

    environ = {
        "REQUEST_METHOD": "POST",
        "SERVER_NAME": "x",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(data),
        "CONTENT_LENGTH": str(len(data)),
    }
    with suppress(RequestRefused):
        document = object_in(Request(environ))
        for name in ("action", "topic", "channel"):
            text_of(document, name).encode()
