"""Lets to admin paths only who is in --http-auth-file."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gevent.threadpool import ThreadPool

from nsqd_py.net.http.answers import TOO_MANY_LOGINS, UNAUTHORIZED, Reply
from nsqd_py.net.http.credentials import BadAuthFile, Login, parse_login, read_credentials, split_authorization
from nsqd_py.net.http.login_queue import LoginQueue, TooManyLogins
from nsqd_py.runtime.logs import Log

REMEMBERED_S = 60.0
_MOST_REMEMBERED = 1024
# How often the file is looked at, at most.
_LOOK_S = 1.0
_BCRYPT_BYTES = 72  # of a password that count, as for htpasswd
# A tenth of the time where all cores are busy: 19 would be a hundredth, and a login of seconds.
_LOW_PRIORITY = 10

# What tells a file from a later one at the same place.
_Stamp = tuple[int, int, int] | None


class Guard:
    """Knows the users and tokens of a file, and reads it again when it changes.

    A token, and a password that was right a short while ago, are checked at once. Another password takes a thread
    0.1 s and more: one at a time, below all else in priority, so that wrong ones in any number keep no message waiting.
    The addresses that they come from take turns.
    """

    def __init__(self, path: str, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds. Raises BadAuthFile."""
        self._path = path
        self._log = log
        self._clock = clock
        self._stamp = _stamp_of(path)
        self._credentials = read_credentials(path)
        self._look_at_s = clock() + _LOOK_S
        # Digests of headers that were right, with the time until when that counts. The key is known to nobody.
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        self._queue = LoginQueue()
        self._pool: Any = None

    def known(self, authorization: bytes) -> bool | None:
        """Whether who sends this header may pass; None when only `check` can say."""
        self._read_again_if_changed()
        scheme, rest = split_authorization(authorization)
        if scheme == b"bearer":
            return self._credentials.has_token(rest)
        if scheme != b"basic" or not self._credentials.hashes:
            return False
        if self._clock() < self._remembered.get(self._digest(authorization), 0.0):
            return True
        return None if parse_login(rest) else False

    def check(self, authorization: bytes, address: str) -> Reply | None:
        """Return the refusal of this header, sent from this address; None if it is right. Blocks this greenlet."""
        try:
            with self._queue.turn(address):
                known = self.known(authorization)  # perhaps another request had the same
                passes = self._check_password(authorization) if known is None else known
        except TooManyLogins:
            return TOO_MANY_LOGINS
        return None if passes else UNAUTHORIZED

    def _check_password(self, authorization: bytes) -> bool:
        login = parse_login(split_authorization(authorization)[1])
        assert login is not None
        credentials = self._credentials
        if self._pool is None:
            self._pool = ThreadPool(1)
        is_right: bool = self._pool.apply(_is_right, (login, credentials.hash_of(login.user)))
        if is_right and credentials is self._credentials:
            self._remember(self._digest(authorization))
        return is_right

    # ---- what was right before

    def _digest(self, authorization: bytes) -> bytes:
        return hashlib.blake2b(authorization, key=self._key, digest_size=32).digest()

    def _remember(self, digest: bytes) -> None:
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[digest] = self._clock() + REMEMBERED_S

    # ---- the file

    def _read_again_if_changed(self) -> None:
        """A file that cannot be used changes nothing, and is reported once."""
        now_s = self._clock()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_S
        stamp = _stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._credentials = read_credentials(self._path)
        except BadAuthFile as error:
            self._log.error("HTTP: %s; what was read before stays valid", error)
            return
        self._remembered.clear()
        self._log.info("HTTP: read --http-auth-file %s again", self._path)


def admin_guard(auth_file: str, log: Log) -> Guard | None:
    """Return the guard with the accounts of --http-auth-file; None if it is "". Raises BadAuthFile."""
    return Guard(auth_file, log) if auth_file else None


def _stamp_of(path: str) -> _Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _is_right(login: Login, known_hash: bytes) -> bool:
    """Runs in a thread of its own; bcrypt lets go of the interpreter meanwhile."""
    import bcrypt  # only where it is needed: who brings a token, or nothing, does not

    if sys.platform == "linux":  # where threads have priorities of their own
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
    try:
        return bcrypt.checkpw(login.password[:_BCRYPT_BYTES], known_hash)
    except ValueError:  # a password that no hash can be made of
        return False
