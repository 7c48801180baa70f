"""The prefix of all keys for statsd. A start needs it without statsd too, for `/config`."""

from __future__ import annotations

from nsqd_py.net.addresses import join_address


def full_prefix(template: str, broadcast_address: str, http_port: int) -> str:
    """Return the template with `%s` replaced by this nsqd's address, and with a dot at its end."""
    address = join_address(broadcast_address, http_port).replace(".", "_").replace(":", "_")
    prefix = template.replace("%s", address)
    return prefix if not prefix or prefix.endswith(".") else prefix + "."
