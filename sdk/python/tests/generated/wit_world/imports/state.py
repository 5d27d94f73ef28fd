from componentize_py_types import Err

from . import listener_types as types

values: dict[str, bytes] = {}
refusal: types.Refusal | None = None


def get(key: str) -> bytes | None:
    if refusal is not None:
        raise Err(refusal)
    return values.get(key)


def set(key: str, value: bytes) -> None:
    if refusal is not None:
        raise Err(refusal)
    values[key] = value


def delete(key: str) -> None:
    if refusal is not None:
        raise Err(refusal)
    values.pop(key, None)
