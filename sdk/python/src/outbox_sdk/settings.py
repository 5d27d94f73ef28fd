"""What the operator told this plugin: the `[config]` and `[secrets]` of its manifest, `NAME.toml` beside `NAME.wasm`.

Ask inside a listener. At the top of a module there is no host yet: that code runs once, while the component is built.
"""

from typing import overload

from . import _host
from ._values import text
from .answer import Failure


@overload
def get(key: str) -> str | None: ...


@overload
def get(key: str, default: str) -> str: ...


def get(key: str, default: str | None = None) -> str | None:
    """The value under a key of `[config]`; `default` when it has no such key."""
    value = _host.current.setting(text(key))
    return default if value is None else value


def get_all() -> dict[str, str]:
    """All of `[config]`, sorted by key."""
    return dict(_host.current.settings())


def secret(key: str) -> str | None:
    """The value under a key of `[secrets]`; None when it has no such key.

    The host blanks it out wherever it sees it in log lines and failures.
    """
    return _host.current.secret(text(key))


def require(key: str) -> str:
    """The value under a key of `[config]`. Raises a retryable `Failure` with the line to add when it has no such key."""
    value = get(key)
    return _missing(key, "config") if value is None else value


def require_secret(key: str) -> str:
    """The value under a key of `[secrets]`. Raises a retryable `Failure` with the line to add when it has no such key."""
    value = secret(key)
    return _missing(key, "secrets") if value is None else value


def _missing(key: str, table: str) -> str:
    # Retryable, for the operator can add it while the event waits.
    raise Failure.retryable(f'the plugin\'s manifest has no `{key}` in [{table}]; add {key} = "…" there', code="setting-missing")
