"""The import as a part of nsqd, which is docked if the data path may have files of Go's nsqd."""

from __future__ import annotations

import time

from nsqd_py.go_import.take_over import take_over
from nsqd_py.server.docking import Part


class GoImport(Part):
    """Takes over the files of Go's nsqd before the data path is loaded."""

    def before_load(self) -> None:
        services = self.host.broker.services
        options = services.options
        take_over(
            services.directory, options.max_bytes_per_file, services.log, time.time(), self.host.on_progress
        )
