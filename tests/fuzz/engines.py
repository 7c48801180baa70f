"""Where inputs come from: atheris, which follows what the code covers, or hypothesis, where that is not installed."""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.table import Run, Target
from tests.fuzz.targets import TARGETS

FOUND = Path(__file__).parent / "found"
_EDITS = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.integers(0, 8), st.binary(max_size=6)), min_size=0, max_size=8
)


def fuzz(name: str, seconds: float, engine: str) -> bool:
    """Say what was done, and keep what was found. False where something was."""
    began_s = time.monotonic()
    if engine == "atheris":
        count, error = _with_atheris(name, seconds)
    else:
        count, error = with_hypothesis(TARGETS[name], seconds)
    took_s = time.monotonic() - began_s
    print(
        f"{name}: {'clean' if error is None else 'FOUND'} in {took_s:.0f} s, {count} inputs ({engine})",
        flush=True,
    )
    if error is not None:
        print(error, flush=True)
    return error is None


def best_engine() -> str:
    return "atheris" if importlib.util.find_spec("atheris") is not None else "hypothesis"


def edited(start: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """With pieces replaced by others."""
    data = bytearray(start)
    for place, length, piece in edits:
        at = place % (len(data) + 1)
        data[at : at + length] = piece
    return bytes(data)


def with_hypothesis(target: Target, seconds: float, at_a_time: int = 500) -> tuple[int, str | None]:
    """How many inputs were tried, and what the smallest bad one is."""
    inputs = st.one_of(st.binary(max_size=200), st.builds(edited, st.sampled_from(target.seeds), _EDITS))
    deadline_s, count = time.monotonic() + seconds, 0
    latest = b""

    with target.open() as run:

        def attempt(data: bytes) -> None:
            nonlocal count, latest
            count += 1
            latest = data
            run(data)

        for each in target.seeds:
            attempt(each)
        while time.monotonic() < deadline_s:
            try:
                _batch(attempt, inputs, at_a_time)
            except Exception as error:  # noqa: BLE001  whatever it is, it is a bug that was found
                return count, f"  {error!r}\n  input kept in {keep(target, latest)}: {latest[:300]!r}"
    return count, None


def _batch(attempt: Run, inputs: st.SearchStrategy[bytes], count: int) -> None:
    @seed(random.getrandbits(64))
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def some(data: bytes) -> None:
        attempt(data)

    some()


def keep(target: Target, data: bytes) -> Path:
    """In the folder whose files are tests from then on, `found/<target>-<digest>`."""
    name = next(name for name, each in TARGETS.items() if each is target)
    path = FOUND / f"{name}-{sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def _with_atheris(name: str, seconds: float) -> tuple[int, str | None]:
    """In a process of its own: libFuzzer ends it."""
    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(TARGETS[name].seeds):
            Path(corpus, f"seed{number}").write_bytes(data)
        flags = [f"-max_total_time={int(seconds)}", f"-artifact_prefix={FOUND}/{name}-"]
        flags += ["-rss_limit_mb=2048", "-timeout=10", corpus]
        command = [sys.executable, "-m", "tests.fuzz.atheris_target", name, *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    counts = re.findall(r"Done (\d+) runs|^#(\d+)", done.stderr, re.MULTILINE)
    count = max((int(number) for pair in counts for number in pair if number), default=0)
    return count, None if done.returncode == 0 else done.stdout[-3000:] + done.stderr[-3000:]


def replay(name: str, data: bytes) -> None:
    """Raises what the input makes the target raise."""
    open_target: Callable[[], object] = TARGETS[name].open
    with open_target() as run:  # type: ignore[attr-defined]
        run(data)
