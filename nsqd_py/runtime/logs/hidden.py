"""Hides passwords and tokens in texts that are shown: log lines, errors, /config, pages."""

from __future__ import annotations

import re

HIDDEN = "***"
_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")
_NAME = re.compile(r"[\w.-]+\s*[,:=]\s*")
# Names of Spark's and Hadoop's settings whose values are secrets; names of files and of Java classes are none.
_SECRET_SETTING = re.compile(
    r"secret|passw|passphrase|token|\bsas\b|key\b|credentials?(?!s|\.provider)", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"secret|passw|token", re.IGNORECASE)


def without_logins(text: str) -> str:
    """Return a text in which the logins of its URLs are hidden: `http://***@host/path`."""
    if "@" in text and "://" in text:
        return _LOGIN.sub(HIDDEN + "@", text)
    return text


def hidden_secret(text: str) -> str:
    """Return `***` for a secret; "" if it is empty."""
    return HIDDEN if text else ""


def hidden_value(text: str) -> str:
    """Return `name: value`, `name,value` or `name=value` with its value hidden; without a name, the whole text."""
    name = _NAME.match(text)
    return (name[0] if name else "") + hidden_secret(text)


def hidden_option(text: str) -> str:
    """Return `name,value` of an option of the client, with the value hidden unless the name says that it is open."""
    name, comma, value = text.partition(",")
    is_open = comma and name.replace("_", "").isalnum() and "secret" not in name
    if is_open:
        return f"{name},{hidden_url(value)}"
    return hidden_value(text)


def hidden_spark_setting(text: str) -> str:
    """Return `name=value` of a setting of Spark, with the value hidden if its name or itself sounds like a secret."""
    name, equals, value = text.partition("=")
    is_setting = (
        equals
        and name.startswith("spark.")
        and name.replace(".", "").replace("-", "").replace("_", "").isalnum()
    )
    if not is_setting or _SECRET_SETTING.search(name) or _SECRET_VALUE.search(value):
        return hidden_value(text)
    return f"{name}={hidden_url(value)}"


def hidden_url(text: str) -> str:
    """Return a URL, or an address without a scheme, with its login and its query hidden.

    All before the last `@` counts as the login: a password may contain characters that a URL has to escape.
    """
    scheme, separator, rest = text.partition("://") if "://" in text else ("", "", text)
    _, at, address = rest.rpartition("@")
    address, question, _ = address.partition("#")[0].partition("?")
    return f"{scheme}{separator}{HIDDEN + at if at else ''}{address}{question and question + HIDDEN}"


def hidden_path(text: str) -> str:
    """Return a URL with its login, path and query hidden: in the URL of a webhook, the path is the secret."""
    scheme, separator, rest = hidden_url(text).partition("://")
    host, slash, path = rest.partition("/")
    if separator:
        return f"{scheme}{separator}{host}{slash}{hidden_secret(path)}"
    return hidden_secret(text)
