"""nsq-cat: messages of all formats that nsq-to-file writes, and of nsqd's logs; and their damage."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.storage import Storage
from nsq_tools.cat.files import files_of
from nsq_tools.to_file.compression import CODECS
from nsq_tools.to_file.formats import FORMATS
from nsqd_py.diskqueue.messages import Messages
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from tests.support.nsqd_process import MakeNsqd
from tests.support.tool_process import ENVIRONMENT

BODIES = [b'{"id":%d,"s":"\xc3\xa9"}' % number for number in range(300)]
TIMES = [1_700_000_000_123_456_789 + number for number in range(len(BODIES))]
IDS = [b"%016x" % number for number in range(len(BODIES))]


def cat(*flags: str | Path, given: bytes = b"", expected: int = 0) -> tuple[list[bytes], str]:
    """The lines of standard output, and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "nsq_apps", "nsq_cat", *map(str, flags)],
        input=given,
        capture_output=True,
        env=ENVIRONMENT,
        timeout=60,
    )
    assert done.returncode == expected, done.stderr
    return done.stdout.splitlines(), done.stderr.decode()


def messages(bodies: Sequence[bytes], low: int) -> Messages:
    high = low + len(bodies)
    columns = (TIMES[low:high], [1] * len(bodies), IDS[low:high], bodies)
    return Messages("orders", "archive", "a:4150", *columns)


WriteFile = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    """Returns a file in a format, as nsq-to-file writes it: three records or members."""

    def file(name: str, codec: str = "none", bodies: Sequence[bytes] = BODIES) -> Path:
        form = FORMATS[name]
        encoder = form.encoder(CODECS[codec], 3, lambda text: None)
        third = len(bodies) // 3
        parts = [messages(bodies[low : low + third], low) for low in range(0, len(bodies), third)]
        path = tmp_path / f"orders{form.suffix}.{codec}"
        path.write_bytes(encoder.header + b"".join(encoder.encode([part]).data for part in parts))
        if form.convert is None:
            return path
        target = path.with_suffix(".parquet")
        form.convert(path, target, codec)
        return target

    return file


FILES = [(name, codec) for name, form in FORMATS.items() for codec in form.codecs]
files = pytest.mark.parametrize(("name", "codec"), FILES, ids=[f"{name}-{codec}" for name, codec in FILES])


@files
def test_all_formats_are_recognized(name: str, codec: str, write: WriteFile) -> None:
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


def test_the_logs_of_an_nsqd(make_nsqd: MakeNsqd) -> None:
    """While it runs, and after its end."""
    nsqd = make_nsqd("--max-bytes-per-file=4096")
    for low in range(0, len(BODIES), 100):
        nsqd.post("/mpub?topic=orders", b"\n".join(BODIES[low : low + 100]))
    for _ in range(2):
        logs = sorted(nsqd.data_path.glob("orders.*.log"))
        assert len(logs) > 1
        assert cat(*logs) == (BODIES, "")
        (first,) = (json.loads(line) for line in cat("--jsonl", "-n=1", *logs)[0])
        assert (first["topic"], len(first["id"])) == ("orders", 16)
        assert first["timestamp"] > TIMES[0]
        nsqd.stop()


@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_damaged_record_is_reported_and_the_others_are_shown(where: str, codec: str, write: WriteFile) -> None:
    path = write("framed", codec)
    data = bytearray(path.read_bytes())
    places = {"first": FILE_HEADER_BYTES + 80, "middle": len(data) // 2, "last": len(data) - 9}
    data[places[where]] ^= 1
    path.write_bytes(data)
    third = ("first", "middle", "last").index(where) * 100
    shown, said = cat(path, expected=1)
    assert shown == BODIES[:third] + BODIES[third + 100 :]
    assert said.count("\n") == 1
    assert said.startswith(f"nsq-cat: {path}: bytes ")


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_a_torn_end_is_reported(codec: str, write: WriteFile) -> None:
    path = write("jsonl", codec)
    path.write_bytes(path.read_bytes()[:-5])
    shown, said = cat(path, expected=1)
    assert shown[:200] == BODIES[:200]
    assert f"nsq-cat: {path}: " in said
    assert "Traceback" not in said


def test_files_that_cannot_be_read_do_not_stop_it(write: WriteFile, tmp_path: Path) -> None:
    (bad := tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    (header := tmp_path / "header.framed").write_bytes(b"NSQf" + bytes(100))
    (tmp_path / "empty").touch()
    (nothing := tmp_path / "nothing").mkdir()
    files = tmp_path / "none", nothing, bad, header, tmp_path / "empty", Path("/proc/self/mem"), write("lines")
    shown, said = cat(*files, expected=1)
    assert shown == BODIES
    assert "none: No such file or directory" in said
    assert "/proc/self/mem: Input/output error" in said
    assert (said.count("\n"), "Traceback" in said) == (4, False), said


def test_files_of_other_programs(tmp_path: Path) -> None:
    """One large member, and a body that is no text."""
    (path := tmp_path / "a.gz").write_bytes(gzip.compress(b"\n\n".join(BODIES)))
    assert cat(path)[0] == BODIES
    line = json.dumps({"timestamp": 1, "id": "a", "body_base64": "/w=="}).replace(": ", ":").replace(", ", ",")
    assert cat(given=line.encode()) == ([b"\xff"], "")


def test_layouts_that_exclude_each_other() -> None:
    assert "use --jsonl or --pick not both" in cat("--jsonl", "--pick", ".a", expected=2)[1]
    assert "--grep" in cat("--grep", "(", expected=2)[1]


def test_without_pyarrow_a_line_says_what_to_install(write: WriteFile) -> None:
    path = write("parquet")
    code = "import sys; sys.modules['pyarrow'] = None; from nsq_apps.tools import nsq_cat as main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "nsq-cat: parquet files need pyarrow: pip install 'nsqd-py[parquet]'\n"


@pytest.fixture
def archive(write: WriteFile, tmp_path: Path) -> Path:
    """An archive with all that nsq-to-file and others leave in one, and with a file that is still being written."""
    path = tmp_path / "archive"
    (path / "day").mkdir(parents=True)
    for number, (name, codec) in enumerate((("lines", "none"), ("jsonl", "gzip"), ("framed", "zstd"), ("parquet", "none"))):
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


def test_a_directory_is_read_as_spark_replay_reads_it(archive: Path) -> None:
    shown, said = cat("--pick=.n", archive)
    assert (sorted(shown), said) == ([b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3 + [b"3"] * 3, "")
    read_by_spark = [info.path for info in list_files([str(archive)], Storage({}))]
    assert [name for name, _ in files_of([str(archive)])] == read_by_spark


def test_what_is_named_by_a_pattern_of_the_shell_is_read_without_the_manifest(archive: Path) -> None:
    (archive / "orders.9.log").unlink()
    (archive / "README.txt").unlink()
    named = sorted(path for path in archive.iterdir() if not path.name.startswith("."))
    assert sorted(cat("--pick=.n", *named)[0]) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3 + [b"3"] * 3
    assert cat(archive / "_nsq_manifest")[0] == [b'{"path":"orders.0.log"}'], "alone, it is what was asked for"


def test_a_directory_is_read_once_with_its_files(archive: Path) -> None:
    first = archive / "orders.0.log"
    assert cat("--pick=.n", first, archive)[0].count(b"0") == 3


def test_a_directory_without_messages_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("text")
    assert cat(tmp_path, expected=1) == ([], f"nsq-cat: {tmp_path}: there are no files with messages here\n")


def test_the_data_path_of_an_nsqd(make_nsqd: MakeNsqd, tmp_path: Path) -> None:
    nsqd = make_nsqd()
    nsqd.create("orders", "c")
    nsqd.post("/mpub?topic=orders", b"\n".join(BODIES))
    assert cat(nsqd.data_path) == (BODIES, "")
    nsqd.stop()
    assert cat(*sorted(nsqd.data_path.iterdir())) == (BODIES, "")


def test_queues_of_gos_nsqd_are_no_lines(tmp_path: Path) -> None:
    (tmp_path / "orders.diskqueue.000001.dat").write_bytes(b"\0\0\0\2hi")
    shown, said = cat(tmp_path, expected=1)
    assert shown == []
    assert "a queue of Go's nsqd: see docs/take-over.md" in said
