"""The beginning of all keys that are reported to statsd."""

from __future__ import annotations

from nsqd_py.net.addresses import join_address


def full_prefix(template: str, broadcast_address: str, http_port: int) -> str:
    """What all keys begin with; `%s` in the template becomes this nsqd's address, and a dot ends it."""
    address = join_address(broadcast_address, http_port).replace(".", "_").replace(":", "_")
    prefix = template.replace("%s", address)
    return prefix if not prefix or prefix.endswith(".") else prefix + "."
