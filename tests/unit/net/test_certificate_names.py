"""The names of a certificate by which members of a group are known."""

from __future__ import annotations

from typing import Any

import pytest

from nsqd_py.net.tls import names_in

COMMON = ((("organizationName", "example"),), (("commonName", "primary.example"),))


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, set()),
        ({}, set()),
        ({"subject": COMMON}, {"primary.example"}),
        ({"subject": COMMON, "subjectAltName": ()}, {"primary.example"}),
        ({"subject": COMMON, "subjectAltName": (("DNS", "other.example"),)}, {"other.example"}),
        (
            {"subject": COMMON, "subjectAltName": (("DNS", "a"), ("IP Address", "192.0.2.1"))},
            {"a", "192.0.2.1"},
        ),
        ({"subject": COMMON, "subjectAltName": (("DirName", COMMON),)}, set()),
    ],
)
def test_the_common_name_counts_only_without_alternative_names(certificate: Any, names: set[str]) -> None:
    """An authority checks the alternative names; many let the requester choose the common name (RFC 6125, 6.4.4)."""
    assert names_in(certificate) == names
