"""nsq-cat: messages of all formats that nsq-to-file writes, and of nsqd's logs; and their damage."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import cramjam
import pyarrow
import pytest
from pyarrow import parquet

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.storage import Storage
from nsq_tools.cat.files import files_of
from nsq_tools.to_file.formats import FORMATS
from nsqd_py.diskqueue.messages import Messages
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.stores.compression import CODECS
from tests.support.archives import finished_file
from tests.support.sweeps import sample, sweep
from tests.support.tool_process import ENVIRONMENT, run_tool

BODIES = [b'{"id":%d,"s":"\xc3\xa9"}' % number for number in range(300)]
TIMES = [1_700_000_000_123_456_789 + number for number in range(len(BODIES))]
IDS = [b"%016x" % number for number in range(len(BODIES))]


def cat(*flags: str | Path, given: bytes = b"", expected: int = 0) -> tuple[list[bytes], str]:
    """The lines of standard output, and standard error."""
    done = run_tool("nsq_apps", "nsq_cat", *map(str, flags), input=given, text=False)
    assert done.returncode == expected, done.stderr
    return done.stdout.splitlines(), done.stderr.decode()


def messages(bodies: Sequence[bytes], low: int) -> Messages:
    part = slice(low, low + len(bodies))
    return Messages("orders", "archive", "a:4150", TIMES[part], [1] * len(bodies), IDS[part], bodies)


def encoded(name: str, codec: str, bodies: Sequence[bytes], size: int) -> bytes:
    """A file with records or members of that many messages."""
    encoder = FORMATS[name].encoder(CODECS[codec], 3, lambda text: None)
    parts = [messages(bodies[low : low + size], low % len(BODIES)) for low in range(0, len(bodies), size)]
    return encoder.header + b"".join(encoder.encode([part]).data for part in parts)


WriteFile = Callable[..., Path]


@pytest.fixture
def write(tmp_path) -> WriteFile:
    """Returns a file in a format, as nsq-to-file writes it: three records or members."""

    def file(name, codec="none", bodies=BODIES):
        form = FORMATS[name]
        path = tmp_path / f"orders{form.suffix}.{codec}"
        path.write_bytes(encoded(name, codec, bodies, len(bodies) // 3))
        if form.convert is None:
            return path
        target = path.with_suffix(".parquet")
        form.convert(path, target, codec)
        return target

    return file


# Each with its first compression, and lines with each.
FILES = [
    pytest.param(name, codec, marks=() if codec == form.codecs[0] or name == "lines" else pytest.mark.slow)
    for name, form in FORMATS.items()
    for codec in form.codecs
]


@pytest.mark.parametrize(("name", "codec"), FILES)
def test_all_formats_are_recognized(name, codec, write):
    path = write(name, codec)
    assert cat(path) == (BODIES, "")
    assert cat("-", given=path.read_bytes()) == (BODIES, "")
    assert cat("--grep", '"id":7[5-7],', "--pick", ".id", path)[0] == [b"75", b"76", b"77"]
    assert cat("-n", "2", "--grep", '"id":7', path, path)[0] == [BODIES[7], BODIES[70]]
    objects = [json.loads(line) for line in cat("--jsonl", path)[0]]
    assert [message["body"].encode() for message in objects] == BODIES
    if name != "lines":
        assert [message["timestamp"] for message in objects] == TIMES
        assert objects[9] == {
            "timestamp": TIMES[9],
            "id": IDS[9].decode(),
            "attempts": 1,
            "topic": "orders",
            "channel": "archive",
            "nsqd": "a:4150",
            "body": BODIES[9].decode(),
        }


def test_a_parquet_file_that_was_copied_out_of_its_directory(tmp_path):
    """Of the columns, nsq-to-file leaves out the topic there."""
    plain = tmp_path / "orders.framed"
    plain.write_bytes(encoded("framed", "none", BODIES, len(BODIES)))
    stored = tmp_path / "topic=orders" / "orders.parquet"
    stored.parent.mkdir()
    FORMATS["parquet"].convert(plain, stored, "none", ("topic",))
    (first,) = (json.loads(line) for line in cat("--jsonl", "-n=1", stored)[0])
    assert first["topic"] == "orders"
    assert cat("--topic=orders", stored) == (BODIES, "")
    copied = stored.rename(tmp_path / "copied.parquet")
    shown, said = cat("--jsonl", copied)
    assert {json.loads(line)["topic"] for line in shown} == {""}
    assert said.startswith(f"nsq-cat: {copied}: does not store its topic") and said.count("\n") == 1


def test_the_logs_of_an_nsqd(make_nsqd):
    """While it runs, and after its end."""
    nsqd = make_nsqd("--max-bytes-per-file=4096")
    nsqd.create("orders", "c")
    for low in range(0, len(BODIES), 100):
        nsqd.post("/mpub?topic=orders", b"\n".join(BODIES[low : low + 100]))
    for _ in range(2):
        logs = sorted(nsqd.data_path.glob("orders.*.log"))
        assert len(logs) > 1
        assert cat(*logs) == cat(nsqd.data_path) == (BODIES, "")
        (first,) = (json.loads(line) for line in cat("--jsonl", "-n=1", *logs)[0])
        assert (first["topic"], len(first["id"])) == ("orders", 16)
        assert first["timestamp"] > TIMES[0]
        nsqd.stop()
    assert cat(*sorted(nsqd.data_path.iterdir())) == (BODIES, "")


@pytest.mark.parametrize(("where", "codec"), sweep(["first", "middle", "last"], ["zstd", "none"]))
def test_a_damaged_record_is_reported_and_the_others_are_shown(where, codec, write):
    path = write("framed", codec)
    data = bytearray(path.read_bytes())
    places = {"first": FILE_HEADER_BYTES + 80, "middle": len(data) // 2, "last": len(data) - 9}
    data[places[where]] ^= 1
    path.write_bytes(data)
    third = list(places).index(where) * 100
    shown, said = cat(path, expected=1)
    assert shown == BODIES[:third] + BODIES[third + 100 :]
    assert said.count("\n") == 1
    assert said.startswith(f"nsq-cat: {path}: bytes ")


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_a_torn_end_is_reported(codec, write):
    path = write("jsonl", codec)
    path.write_bytes(path.read_bytes()[:-5])
    shown, said = cat(path, expected=1)
    assert shown[:200] == BODIES[:200]
    assert f"nsq-cat: {path}: " in said
    assert "Traceback" not in said


def test_files_that_cannot_be_read_do_not_stop_it(write, tmp_path):
    (bad := tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    (header := tmp_path / "header.framed").write_bytes(b"NSQf" + bytes(100))
    (tmp_path / "empty").touch()
    (nothing := tmp_path / "nothing").mkdir()
    files = (
        tmp_path / "none",
        nothing,
        bad,
        header,
        tmp_path / "empty",
        Path("/proc/self/mem"),
        write("lines"),
    )
    shown, said = cat(*files, expected=1)
    assert shown == BODIES
    assert "none: No such file or directory" in said
    assert "/proc/self/mem: Input/output error" in said
    assert (said.count("\n"), "Traceback" in said) == (4, False), said


def test_a_closed_standard_input_is_an_error_of_one_line():
    command = f"exec {sys.executable} -m nsq_apps nsq_cat <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "nsq-cat: -: Bad file descriptor\n")


def test_files_of_other_programs(tmp_path):
    """One large member, and a body that is no text."""
    (path := tmp_path / "a.gz").write_bytes(gzip.compress(b"\n\n".join(BODIES)))
    assert cat(path)[0] == BODIES
    line = (
        json.dumps({"timestamp": 1, "id": "a", "body_base64": "/w=="}).replace(": ", ":").replace(", ", ",")
    )
    assert cat(given=line.encode()) == ([b"\xff"], "")


ODD_LINES = {
    "a number as the body": '{"timestamp":1,"id":"a","body":5}',
    "a number as the topic": '{"timestamp":1,"id":"a","topic":5,"body":"x"}',
    "a list as the nsqd": '{"timestamp":1,"id":"a","nsqd":["a"],"body":"x"}',
    "a number as the id": '{"timestamp":1,"id":"a","id":7,"body":"x"}',
    "text as the time": '{"timestamp":1,"id":"a","timestamp":"now","body":"x"}',
    "a fraction as attempts": '{"timestamp":1,"id":"a","attempts":1.5,"body":"x"}',
    "half of a surrogate pair": '{"timestamp":1,"id":"a","body":"\\ud800"}',
    "no body": '{"timestamp":1,"id":"a"}',
    "a list": "[1]",
}


def test_lines_with_other_types_are_reported():
    good = '{"timestamp":1,"id":"a","body":"good"}'
    lines = [line for odd in ODD_LINES.values() for line in (good, odd)]
    shown, said = cat("--jsonl", given="\n".join(lines).encode(), expected=1)
    assert [json.loads(line)["body"] for line in shown] == ["good"] * len(ODD_LINES)
    errors = said.splitlines()
    assert len(errors) == len(ODD_LINES)
    assert all(error.startswith("nsq-cat: -: a line is no message: ") for error in errors)


def test_missing_fields_and_null_are_empty():
    line = b'{"timestamp":1,"id":"","topic":null,"attempts":null,"body":"x"}'
    (shown,) = cat("--jsonl", given=line)[0]
    assert json.loads(shown) == {
        "timestamp": 1,
        "id": "",
        "attempts": 0,
        "topic": "",
        "channel": "",
        "nsqd": "",
        "body": "x",
    }


def test_parquet_files_of_other_programs(tmp_path):
    """Columns of other types are used if that is clear, and else are an error of one line."""
    time = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    topic = pyarrow.array(["t", "t"]).dictionary_encode()
    tables = [
        {"body": ["a", "b"], "id": [b"7", None], "timestamp": [time, None], "topic": topic, "other": [1, 2]},
        {"body": [1]},
        {"body": [None]},
        {"body": [{"a": 1}]},
        {"body": [b"x"], "topic": [5]},
        {"body": [b"x"], "id": [5]},
        {"body": [b"x"], "timestamp": ["now"]},
        {"body": [b"x"], "attempts": [1.5]},
        {"body": [b"x"], "topic": [b"\xff"]},
        {"other": [b"x"]},
    ]
    paths = [tmp_path / f"{number}.parquet" for number in range(len(tables))]
    for path, columns in zip(paths, tables, strict=True):
        parquet.write_table(pyarrow.table(columns), path)
    lines, said = cat("--jsonl", *paths, expected=1)
    shown = [json.loads(line) for line in lines]
    assert [(row["body"], row["id"], row["topic"]) for row in shown] == [("a", "7", "t"), ("b", "", "t")]
    assert [row["timestamp"] for row in shown] == [int(time.timestamp()) * 10**9, 0]
    errors = said.splitlines()
    assert len(errors) == len(paths) - 1
    for path, error in zip(paths[1:], errors, strict=True):
        assert error.startswith(f"nsq-cat: {path}: parquet: ")


_PEAK = """
import re, sys
from nsq_apps.nsq_cat import main
status = main(sys.argv[1:])
print(re.search("VmHWM: *([0-9]+) kB", open("/proc/self/status").read().replace(chr(9), " "))[1], file=sys.stderr)
sys.exit(status)
"""


def bomb(codec: str, line_bytes: int, path: Path) -> Path:
    """A small file with one huge line between two short ones."""
    pieces = [b"first\n", *[bytes(1 << 20).replace(b"\0", b"x")] * (line_bytes >> 20), b"\nlast\n"]
    if codec == "gzip":
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        path.write_bytes(b"".join([*map(packer.compress, pieces), packer.flush()]))
    else:
        path.write_bytes(bytes(cramjam.zstd.compress(b"".join(pieces), 1)))
    return path


@pytest.mark.parametrize("codec", sample("zstd", "gzip"))
def test_a_small_file_with_a_huge_line_takes_little_memory(codec, tmp_path):
    path = bomb(codec, 160 << 20, tmp_path / "bomb")
    assert path.stat().st_size < 1 << 20
    command = [sys.executable, "-c", _PEAK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert (done.returncode, done.stdout) == (1, "first\nlast\n")
    said, peak_kb = done.stderr.splitlines()
    assert said == f"nsq-cat: {path}: a line of {160 << 20} bytes is left out; at most {64 << 20} are read"
    assert int(peak_kb) < 200 * 1024


def in_small_parts(form: str, codec: str, bodies: list[bytes], path: Path) -> Path:
    """A file of 100 messages in each record or row group."""
    if form == "parquet":
        parquet.write_table(pyarrow.table({"body": bodies}), path, row_group_size=100, compression="none")
    else:
        path.write_bytes(encoded(form, codec, bodies, 100))
    return path


@pytest.mark.parametrize(
    ("form", "codec", "said_of_it"),
    [
        ("lines", "none", "it has become shorter while it was read"),
        ("lines", "gzip", "it has become shorter while it was read"),
        ("framed", "none", "it has become shorter while it was read"),
        ("parquet", "none", "parquet: "),
    ],
)
def test_a_file_that_is_cut_while_it_is_read(start, tmp_path, form, codec, said_of_it):
    """As by a program that rotates files: what is left is an error of one line, and no end of the process by a signal."""
    bodies = [os.urandom(500).hex().encode() for _ in range(10_000)]
    data = b"".join(body + b"\n" for body in bodies)
    path = in_small_parts(form, codec, bodies, tmp_path / "file")
    with start("nsq_cat", str(path)) as tool:
        first = tool.stdout.read(1000)
        os.truncate(path, 100)
        rest = tool.stdout.read()
        assert tool.wait() == 1
        said = tool.log_text()
    assert data.startswith(first) and 0 < len(rest) < len(data) - len(first)
    assert said.startswith(f"nsq-cat: {path}: {said_of_it}") and "Traceback" not in said


def test_layouts_that_exclude_each_other():
    assert "use --jsonl or --pick not both" in cat("--jsonl", "--pick", ".a", expected=2)[1]
    assert "--grep" in cat("--grep", "(", expected=2)[1]
    assert "-n -1 must not be negative; 0 means no limit" in cat("-n", "-1", expected=2)[1]


def test_without_pyarrow_a_line_says_what_to_install(write):
    path = write("parquet")
    code = "import sys; sys.modules['pyarrow'] = None; from nsq_apps.nsq_cat import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, env=ENVIRONMENT, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "nsq-cat: parquet files need pyarrow: pip install 'nsqd-py[parquet]'\n"


@pytest.fixture
def archive(write, tmp_path) -> Path:
    """An archive with all that nsq-to-file and others leave in one, and with a file that is still being written."""
    path = tmp_path / "archive"
    (path / "day").mkdir(parents=True)
    for number, (name, codec) in enumerate(
        (("lines", "none"), ("jsonl", "gzip"), ("framed", "zstd"), ("parquet", "none"))
    ):
        file = write(name, codec, [b'{"n":%d}' % number] * 3)
        suffix = CODECS[codec].suffix if name != "parquet" else ""
        file.rename(path / ("day" if number % 2 else ".") / f"orders.{number}{FORMATS[name].suffix}{suffix}")
    (path / "_nsq_manifest").write_text('{"path":"orders.0.log"}\n')
    (path / "orders.9.log").write_text("not finished")
    (path / ".nsq_to_file.0a1b.json").write_text('{"work_name":"orders.9.log"}')
    (path / "empty.log").touch()
    (path / "README.txt").write_text("read me\n")
    (path / ".hidden.log").write_text("hidden\n")
    for directory in ("_delta_log", ".trash"):
        (path / directory).mkdir()
        (path / directory / "x.jsonl").write_text("{}\n")
    (path / "day" / "again").symlink_to(path)
    return path


def test_a_directory_is_read_as_spark_replay_reads_it(archive):
    shown, said = cat("--pick=.n", archive)
    assert (sorted(shown), said) == ([b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3 + [b"3"] * 3, "")
    read_by_spark = [info.path for info in list_files([str(archive)], Storage({}))]
    assert [name for name, _ in files_of([str(archive)])] == read_by_spark


def test_what_is_named_by_a_pattern_of_the_shell_is_read_without_the_manifest(archive):
    (archive / "orders.9.log").unlink()
    (archive / "README.txt").unlink()
    named = sorted(path for path in archive.iterdir() if not path.name.startswith("."))
    assert sorted(cat("--pick=.n", *named)[0]) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3 + [b"3"] * 3
    assert cat(archive / "_nsq_manifest")[0] == [b'{"path":"orders.0.log"}'], (
        "alone, it is what was asked for"
    )


def test_a_directory_is_read_once_with_its_files(archive):
    first = archive / "orders.0.log"
    assert cat("--pick=.n", first, archive)[0].count(b"0") == 3


def test_a_directory_without_messages_is_an_error(tmp_path):
    (tmp_path / "notes.txt").write_text("text")
    assert cat(tmp_path, expected=1) == ([], f"nsq-cat: {tmp_path}: there are no files with messages here\n")


def test_queues_of_gos_nsqd_are_no_lines(tmp_path):
    (tmp_path / "orders.diskqueue.000001.dat").write_bytes(b"\0\0\0\2hi")
    shown, said = cat(tmp_path, expected=1)
    assert shown == []
    assert "a queue of Go's nsqd: see docs/take-over.md" in said


def test_a_pipe_is_read_as_it_comes() -> None:
    """`tail -f` never ends, and a command before it may write more than the memory has."""
    command = [sys.executable, "-m", "nsq_apps", "nsq_cat", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"first\n", b"second\n"):
            process.stdin.write(line)
            assert process.stdout.read(len(line)) == line
        process.stdin.close()
        assert process.wait() == 0


def test_a_finished_file_of_a_directory_that_was_cut(tmp_path) -> None:
    """Its messages are shown, and the status says that some are missing, also if none is left."""
    finished_file(tmp_path, "a.log", b"1\n2\n")
    os.truncate(finished_file(tmp_path, "b.log", b"3\n4\n5\n"), 2)
    os.truncate(finished_file(tmp_path, "c.log", b"6\n"), 0)
    shown, complaints = cat(tmp_path, expected=1)
    assert shown == [b"1", b"2", b"3"]
    for name, left_bytes, noted_bytes in (("b", 2, 6), ("c", 0, 2)):
        what = f"{name}.log: damaged at {left_bytes}: the end is missing, since the manifest of nsq-to-file has noted"
        assert f"{what} {noted_bytes} bytes" in complaints
    assert len(complaints.splitlines()) == 2


def test_a_bucket_by_the_name_that_spark_has_for_it() -> None:
    assert list(files_of(["s3a://bucket/nsq", "s3://bucket/nsq"])) == [("s3://bucket/nsq", None)] * 2
