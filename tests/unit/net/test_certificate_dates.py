"""The end of the validity of a certificate, as nsqd reports it."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nsqd_py.net.tls_context import certificate_end_s, end_of_validity_s


def certificate(end: datetime.datetime) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "n" * 60),
            x509.NameAttribute(NameOID.LOCALITY_NAME, "l" * 100),
        ]
    )
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(
        datetime.datetime(2001, 1, 1)
    )
    return builder.not_valid_after(end).sign(key, hashes.SHA256())


@pytest.mark.parametrize("year", [2002, 2026, 2049, 2050, 2999])
def test_the_end_is_read_from_both_forms_of_time(year: int, tmp_path: Path) -> None:
    end = datetime.datetime(year, 11, 29, 23, 59, 58)
    made = certificate(end)
    file = tmp_path / "cert.pem"
    file.write_bytes(b"# a comment\n" + made.public_bytes(serialization.Encoding.PEM))
    assert certificate_end_s(str(file)) == int(end.replace(tzinfo=datetime.UTC).timestamp())


def test_what_is_no_certificate_has_no_end(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    assert certificate_end_s(str(file)) == 0
    good = certificate(datetime.datetime(2030, 1, 1)).public_bytes(serialization.Encoding.DER)
    for data in (b"", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----", good[:60]):
        file.write_bytes(data)
        assert certificate_end_s(str(file)) == 0
    for size in range(100):
        with pytest.raises((ValueError, IndexError)):
            end_of_validity_s(good[:size])
