"""The failures that a server answers with whatever was asked, made once."""

from __future__ import annotations

from nsqd_py.errors import HttpError
from nsqd_py.net.http.answers import failure

RETRY_AFTER = "Retry-After: 1\r\n"
INVALID_REQUEST = failure(HttpError(400, "INVALID_REQUEST"))
INTERNAL_ERROR = failure(HttpError(500, "INTERNAL_ERROR"))
TOO_MANY_READERS = failure(HttpError(503, "TOO_MANY_READERS"), RETRY_AFTER)
TOO_MANY_CONNECTIONS = failure(HttpError(503, "TOO_MANY_CONNECTIONS"))
UNAUTHORIZED = failure(
    HttpError(401, "UNAUTHORIZED"),
    'WWW-Authenticate: Basic realm="nsq", charset="UTF-8"\r\nWWW-Authenticate: Bearer realm="nsq"\r\n',
)
TOO_MANY_LOGINS = failure(HttpError(429, "TOO_MANY_LOGINS"), RETRY_AFTER)
