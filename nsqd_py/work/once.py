"""The id of a message and its work in one transaction, so that a message that comes twice has its effect once.

The table has a row for each message and handler. nsqd-py never deletes them: delete those that are older than a message can
come back, by their column `applied_at`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nsqd_py.client.errors import BadClientOption
from nsqd_py.work.outcomes import Drop, TransactionEnded

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_SQLITE_TABLE = """
CREATE TABLE IF NOT EXISTS {} (handler TEXT NOT NULL, id TEXT NOT NULL,
applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (handler, id)) WITHOUT ROWID
"""
_POSTGRESQL_TABLE = """
CREATE TABLE IF NOT EXISTS {} (handler text NOT NULL, id text NOT NULL,
applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (handler, id))
"""
_SQLITE_INSERT = "INSERT OR IGNORE INTO {} (handler, id) VALUES (?, ?)"
_POSTGRESQL_INSERT = "INSERT INTO {} (handler, id) VALUES (%s, %s) ON CONFLICT DO NOTHING"
# Two sessions that create a table at once may both fail, even with IF NOT EXISTS.
_LOCK = "SELECT pg_advisory_xact_lock(20454857)"
_FIND_TABLE = "SELECT to_regclass(%s)"
_APPLIED = "it was applied before"
# A savepoint ends with its transaction, also if another transaction has begun since.
_SAVE = "SAVEPOINT nsqd_py_once"
_RELEASE = "RELEASE nsqd_py_once"
_NOT_SAVED = "no such savepoint"
_DELETE = "DELETE FROM {} WHERE handler = ? AND id = ?"
_ENDED = (
    "the handler has ended the transaction of once, and a part of its work may be committed: remove its commit or rollback, "
    "also that of `with connection:` and executescript"
)


class Once:
    """Apply each message once: its id is inserted in the transaction in which the handler works.

        once = Once(lambda: sqlite3.connect("shop.db"))

        @app.handler("orders", once=once)
        def bill(order: Order, connection: sqlite3.Connection) -> None: ...

    The handler must work with the connection that it gets, and neither commit nor roll back. A parameter gets it whose name
    is `connection`, or whose annotation is a class `Connection`.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        key: Callable[[Any], object] | None = None,
        table: str = "nsqd_py_applied",
    ) -> None:
        """
        connect  returns a new connection of sqlite3 or psycopg. It is called once in each thread that runs handlers
        key      returns the id that the publisher gave to a value; None is an error. Without it, the id of the message: a
                 publisher that repeats a publish, because it did not get the answer, makes a second one
        table    is created if it does not exist

        Raises BadClientOption for a name of a table that is not plain.
        """
        if _TABLE.fullmatch(table) is None:
            raise BadClientOption(
                f"table must be letters, digits and _, perhaps after a schema, got {table!r}"
            )
        self._connect = connect
        self._key = key
        self._table = table
        self._of_thread = threading.local()

    def _key_of(self, value: object) -> str:
        """Raises BadClientOption for None: all messages without a key would be the same one."""
        key = None
        if self._key is not None:
            key = self._key(value)
        if key is None:
            raise BadClientOption(
                "the key of once returned None, which would be the same for all such messages: let it return the id that the "
                "publisher gave, or raise Drop for a message without one"
            )
        return str(key)

    def apply(self, channel: str, message_id: str, value: object, call: Callable[[Any], Any]) -> Any:
        """Return the result of `call(connection)`, whose work is committed. Raises Drop if the message was applied before.

        The channel is a part of the key: the work of another handler of the message is another effect. Raises TransactionEnded
        if the call has ended the transaction of SQLite; psycopg refuses that itself.
        """
        key = message_id
        if self._key is not None:
            key = self._key_of(value)
        row = channel, key
        connection = self._own_connection()
        if _is_postgresql(connection):
            transaction = connection.transaction()
        else:
            transaction = _sqlite_transaction(connection)
        insert = _POSTGRESQL_INSERT if _is_postgresql(connection) else _SQLITE_INSERT
        try:
            with transaction:
                if not connection.execute(insert.format(self._table), row).rowcount:
                    raise Drop(_APPLIED)
                return call(connection)
        except Drop:
            raise
        except TransactionEnded:
            # Its dead letter can be replayed, once the handler is mended.
            with suppress(Exception), _sqlite_transaction(connection):
                connection.execute(_DELETE.format(self._table), row)
            raise
        except BaseException:
            self._forget_if_broken(connection)
            raise

    def _own_connection(self) -> Any:
        """Return the connection of this thread, in this process."""
        own = self._of_thread
        if getattr(own, "pid", None) != os.getpid():
            connection = self._connect()
            self._prepare(connection)
            own.connection = connection
            own.pid = os.getpid()
        return own.connection

    def _prepare(self, connection: Any) -> None:
        """Create the table, if it does not exist. Raises BadClientOption for a connection of another kind."""
        if not _is_postgresql(connection):
            with _sqlite_transaction(connection):
                connection.execute(_SQLITE_TABLE.format(self._table))
            return
        with connection.transaction():
            if connection.execute(_FIND_TABLE, (self._table,)).fetchone()[0] is None:
                connection.execute(_LOCK)
                connection.execute(_POSTGRESQL_TABLE.format(self._table))

    def _forget_if_broken(self, connection: Any) -> None:
        """Let the next message of this thread have a new connection, unless this one still works."""
        if _is_postgresql(connection):
            is_usable = not connection.closed
        else:
            is_usable = _is_open(connection)
        if not is_usable:
            del self._of_thread.pid


def _is_postgresql(connection: Any) -> bool:
    """Return False for a connection of sqlite3. Raises BadClientOption if it is of neither."""
    modules = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    if not modules & {"sqlite3", "psycopg"}:
        raise BadClientOption(
            f"once needs a connection of sqlite3 or psycopg, and connect returned {connection!r}"
        )
    return "psycopg" in modules


@contextmanager
def _sqlite_transaction(connection: Any) -> Iterator[None]:
    """Commit at the end, and roll back after an error.

    By SQL: what the methods of a connection do depends on its isolation level and its autocommit mode. Raises TransactionEnded if
    the transaction was ended inside.
    """
    if not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    connection.execute(_SAVE)
    has_returned = False
    try:
        yield
        has_returned = True
        if _was_ended(connection):
            raise TransactionEnded(_ENDED)
        connection.execute("COMMIT")
    except BaseException as error:
        was_ended = False
        with suppress(Exception):  # the first error says more
            was_ended = not has_returned and _was_ended(connection)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if was_ended:
            raise TransactionEnded(_ENDED) from error
        raise


def _was_ended(connection: Any) -> bool:
    """Release the savepoint. Return True if it is not there: it ended with its transaction."""
    try:
        connection.execute(_RELEASE)
    except Exception as error:
        if _NOT_SAVED in str(error):
            return True
        raise
    return False


def _is_open(connection: Any) -> bool:
    try:
        connection.execute("SELECT 1")
    except Exception:  # noqa: BLE001 - whatever it is, it cannot be used
        return False
    return True
