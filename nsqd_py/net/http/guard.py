"""Checks passwords and tokens of requests to admin paths against --http-auth-file."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gevent.event import Event
from gevent.threadpool import ThreadPool

from nsqd_py.net.http.answers import TOO_MANY_LOGINS, UNAUTHORIZED, Reply
from nsqd_py.net.http.credentials import BadAuthFile, Login, parse_login, read_credentials, split_authorization
from nsqd_py.runtime.logs import Log

REMEMBERED_S = 60.0
_MOST_REMEMBERED = 1024
# The least time between two looks at the file.
_LOOK_S = 1.0
_BCRYPT_BYTES = 72  # bcrypt ignores the rest of a password, as htpasswd does
# A tenth of the processor's time when all cores are busy. 19 would be a hundredth, and a login would take seconds.
_LOW_PRIORITY = 10

MOST_WAITING_PER_ADDRESS = 4
MOST_WAITING_ADDRESSES = 256

# (modification time in ns, size, inode) of a file; None without one.
_Stamp = tuple[int, int, int] | None


class Guard:
    """The users and tokens of a file, which is read again when it changes.

    Tokens, and passwords that were right within REMEMBERED_S, are checked at once. Another password takes a thread
    0.1 s or more. The thread has a low priority and checks one password at a time, so that wrong passwords in any
    number delay no message. The addresses that send passwords take turns.
    """

    def __init__(self, path: str, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file. `clock` returns seconds. Raises BadAuthFile."""
        self._path = path
        self._log = log
        self._clock = clock
        self._stamp = _stamp_of(path)
        self._credentials = read_credentials(path)
        self._look_at_s = clock() + _LOOK_S
        # Digests of headers that were right, and when each must be checked again. The key is a secret of the process.
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        self._queue = LoginQueue()
        self._pool: Any = None

    def known(self, authorization: bytes) -> bool | None:
        """True if the header is right, False if it is wrong, None if its password must be checked with `check`."""
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
        """Return the refusal of a header that `address` sent; None if it is right. Blocks this greenlet."""
        try:
            with self._queue.turn(address):
                known = self.known(authorization)  # another request may have had the same header
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

    # ---- remembered passwords

    def _digest(self, authorization: bytes) -> bytes:
        return hashlib.blake2b(authorization, key=self._key, digest_size=32).digest()

    def _remember(self, digest: bytes) -> None:
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[digest] = self._clock() + REMEMBERED_S

    # ---- the file

    def _read_again_if_changed(self) -> None:
        """Read the file if it changed. If it cannot be used, log that once and keep the accounts."""
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
            self._log.error("HTTP: %s; the previous accounts stay valid", error)
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
    """True if the password is right. Call it in a thread; bcrypt releases the interpreter meanwhile."""
    import bcrypt  # slow to import, and requests without a password do not need it

    if sys.platform == "linux":  # where each thread has a priority
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
    try:
        return bcrypt.checkpw(login.password[:_BCRYPT_BYTES], known_hash)
    except ValueError:  # bcrypt cannot hash this password
        return False


class TooManyLogins(Exception):
    """Too many passwords of this address wait for a check, or passwords of too many addresses."""


class LoginQueue:
    """Lets one greenlet at a time check a password. The addresses take turns.

    An address that sends wrong passwords without a pause delays another address by one check only. At most
    MOST_WAITING_PER_ADDRESS checks of an address wait, and checks of at most MOST_WAITING_ADDRESSES addresses.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Event]] = OrderedDict()
        self._is_busy = False

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Hold the turn of this address, after waiting for it. Raises TooManyLogins. Blocks this greenlet."""
        self._enter(address)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, address: str) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        waiting = self._waiting.get(address)
        if waiting is None:
            if len(self._waiting) >= MOST_WAITING_ADDRESSES:
                raise TooManyLogins
            waiting = self._waiting[address] = deque()
        elif len(waiting) >= MOST_WAITING_PER_ADDRESS:
            raise TooManyLogins
        my_turn = Event()
        waiting.append(my_turn)
        try:
            my_turn.wait()
        except BaseException:  # this greenlet is killed: the next one gets the turn
            if my_turn.is_set():
                self._leave()
            else:
                self._forget(address, my_turn)
            raise

    def _leave(self) -> None:
        if not self._waiting:
            self._is_busy = False
            return
        address, waiting = self._waiting.popitem(last=False)
        waiting.popleft().set()
        if waiting:
            self._waiting[address] = waiting  # behind the other addresses

    def _forget(self, address: str, my_turn: Event) -> None:
        waiting = self._waiting[address]
        waiting.remove(my_turn)
        if not waiting:
            del self._waiting[address]
