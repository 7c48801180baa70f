"""What is published, and to which kind of server: the part of a row that its load needs to know."""

import json
import os
from dataclasses import asdict, dataclass, replace

PUBLISHING = "BENCH_PUBLISHING"  # an environment variable


@dataclass(frozen=True, slots=True)
class Workload:
    """What is published, and how.

    batch       messages in a request
    window      requests that each connection keeps unanswered
    rate_per_s  messages that leave each second in an open loop; 0 for a closed loop
    consumers   that finish the messages meanwhile; of nsqds only, and with one topic
    """

    connections: int = 16
    batch: int = 1
    window: int = 1
    size_bytes: int = 200
    topics: int = 1
    rate_per_s: float = 0
    consumers: int = 0

    def divided(self, parts: int) -> "list[Workload]":
        """Return the workloads of `parts` processes, which make this one together."""
        parts = min(parts, self.connections)
        return [
            replace(
                self,
                connections=self.connections // parts + (number < self.connections % parts),
                rate_per_s=self.rate_per_s / parts,
            )
            for number in range(parts)
        ]


@dataclass(frozen=True, slots=True)
class Publishing:
    """The name of a setup, and what is published to it."""

    setup: str
    workload: Workload

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> "Publishing":
        content = json.loads(os.environ[PUBLISHING])
        return cls(content["setup"], Workload(**content["workload"]))
