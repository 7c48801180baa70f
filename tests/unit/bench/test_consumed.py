import struct

from bench.consumer import Frames
from bench.loads.consumed import finished_at

SAMPLES = [(10.0, 100, 0), (11.0, 200, 0), (13.0, 600, 0)]


def test_messages_finished_between_two_samples_are_on_the_line_between_them() -> None:
    assert [finished_at(SAMPLES, at_s) for at_s in (9.0, 10.5, 12.0, 20.0)] == [0, 150, 400, 600]


def frame(message_id: bytes, body: bytes) -> bytes:
    content = struct.pack(">iqH", 2, 1, 1) + message_id + body
    return struct.pack(">i", len(content)) + content


def test_the_ids_of_many_frames_become_fins() -> None:
    frames = Frames(body_bytes=3)
    ids = [b"0123456789abcde%d" % number for number in range(3)]
    buffer = bytearray(b"".join(frame(each, b"abc") for each in ids) + b"\0\0")
    assert frames.are_regular(buffer, 3)
    assert frames.fins(buffer, 3) == b"".join(b"FIN %s\n" % each for each in ids)


def test_a_frame_of_another_size_or_type_is_noticed() -> None:
    frames = Frames(body_bytes=3)
    heartbeat = struct.pack(">ii", 15, 0) + b"_heartbeat_"
    good = frame(b"0" * 16, b"abc")
    assert not frames.are_regular(bytearray(good + frame(b"0" * 16, b"abcd")), 2)
    assert not frames.are_regular(bytearray(good + heartbeat + b"\0" * 40), 2)
    assert frames.are_regular(bytearray(good[:20]), 0)
    assert not frames.are_regular(bytearray(heartbeat), 0)
