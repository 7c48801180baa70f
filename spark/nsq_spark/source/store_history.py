"""The stores of nsqd among the paths of an archive, as parts of the history of logs (`nsq_spark.source.history`).

The list of stored files is their manifest: it has the ids and the numbers of each file, and no message is in two of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from nsq_spark.archive.listing import split_stores
from nsq_spark.archive.sidecars import NsqdPart
from nsq_spark.archive.splits import ArchiveError, FileInfo
from nsq_spark.archive.store_logs import StoredLog, StoreLogs
from nsq_spark.source.live_options import LogKey
from nsq_spark.source.options import ReadOptions

# Spark asks a hundred times a second for what is new, and a store takes money for each request.
_REFRESH_EVERY_S = 1.0
IDS_DO_NOT_RISE = (
    "nsq: {file}: the ids of topic {topic} do not rise, since it takes dead letters, which keep theirs: read its store without "
    "nsqd and nsqlookupd"
)


class ArchivedStores:
    """The logs in stores, of the requested topics. Methods raise ArchiveError.

    others    the paths of other archives, as of the last call of `logs`
    are_read  True after the first `refresh` without an error
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._stores: list[StoreLogs] = []
        self._refreshed_s = 0.0
        self.others = options.paths

    @property
    def are_read(self) -> bool:
        return self._refreshed_s > 0

    def refresh(self) -> None:
        """Read what is new, if the last time was a second ago. A path may become a store by then."""
        now_s = time.monotonic()
        if self.are_read and now_s - self._refreshed_s < _REFRESH_EVERY_S:
            return
        options = self._options
        if self.others:
            paths, stores = split_stores(self.others, options.storage, skips_damaged=options.skip_damaged)
            self.others = tuple(paths)
            self._stores += stores
        for store in self._stores:
            store.refresh()
        self._refreshed_s = now_s

    def wait(self) -> None:
        """Sleep until `refresh` reads again."""
        time.sleep(max(0.0, self._refreshed_s + _REFRESH_EVERY_S - time.monotonic()))

    def logs(self) -> Iterator[StoredLog]:
        """Yield the files with messages, those of a log in order, as of the last `refresh`."""
        for store in self._stores:
            for one in store.logs():
                if self._options.requested.has_topic(one.info.topic):
                    yield one

    def files(self) -> Iterator[tuple[FileInfo, list[tuple[str, NsqdPart]]]]:
        """Yield the files with messages, and their parts by topic, after a `refresh`. Raises ArchiveError."""
        self.refresh()
        before: tuple[LogKey, int] | None = None
        for info, part, _, epochs in self.logs():
            log = LogKey(info.topic, info.nsqd)
            rises = part.last_id >= part.first_id
            if before is not None and before[0] == log and not part.is_cut:
                rises = rises and part.first_id > before[1]
            if not rises:
                raise ArchiveError(IDS_DO_NOT_RISE.format(file=info.path, topic=info.topic))
            before = None if part.is_cut else (log, part.last_id)
            epoch = epochs[0].number if epochs else None
            count = part.end_seq - part.first_seq
            span = part.first_id, part.last_id
            end = part.last_id, part.end_seq
            nsqd_part = NsqdPart(info.nsqd, *span, count, True, epoch, part.first_seq, end)
            yield info, [(info.topic, nsqd_part)]
