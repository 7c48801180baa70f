"""POSTs of JSON documents to a URL of the options."""

from __future__ import annotations

import string
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import orjson

from nsqadmin_py.options import NsqadminOptions
from nsqd_py.net.http import BadStatus, HttpClientError, Unreachable, Url, parse_url
from nsqd_py.net.http.client import http_client

_STATUS_AFTER_SUCCESS = 300


class WebhookError(Exception):
    """A document was not delivered; str(error) says why, without secrets of the URL.

    status      the status of the answer; 0 if there was none
    is_unclear  True if the receiver may have got the document: the connection was there, and no answer came
    """

    def __init__(self, reason: str, status: int = 0, *, is_unclear: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.is_unclear = is_unclear


class Webhook:
    """Sends documents to one URL, whose path, query and login may be secrets: no text here contains them.

    The text of an answer is not shown either, since many servers repeat the path in it.
    """

    def __init__(self, url: str, options: NsqadminOptions) -> None:
        self._url = url
        self._client = http_client(options)

    def __bool__(self) -> bool:
        """True if there is a URL."""
        return bool(self._url)

    @property
    def origin(self) -> str:
        """Return scheme, host and port of the URL, for logs. Raises ValueError if it is not a URL."""
        return parse_url(self._url).origin

    def post(self, document: Any) -> None:
        """Send a document, and return after an answer with a status from 200 to 299. Raises WebhookError."""
        try:
            url = parse_url(self._url)
        except ValueError:
            raise WebhookError("its URL is not valid") from None
        url = replace(
            url, path=quote(url.path, safe=string.printable.strip())
        )  # an error would show what is not allowed
        try:
            self._client.exchange("POST", url, orjson.dumps(document), {"Content-Type": "application/json"})
        except BadStatus as error:
            if error.status >= _STATUS_AFTER_SUCCESS:
                raise WebhookError(f"got response {error.status}", error.status) from None
        except HttpClientError as error:
            raise WebhookError(
                f"{url.origin}: {_without_secrets(str(error), url)}",
                is_unclear=not isinstance(error, Unreachable),
            ) from None


def _without_secrets(text: str, url: Url) -> str:
    """Hide parts of the URL in an error: a receiver that speaks no HTTP may repeat them."""
    path, _, query = url.path.partition("?")
    for secret in (url.path, query, path, url.login, url.login.partition(":")[2]):
        if len(secret) > 1:
            text = text.replace(secret, "***")
    return text
