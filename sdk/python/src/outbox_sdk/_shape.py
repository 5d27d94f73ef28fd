"""Reads parsed JSON into dataclasses, and says which field is wrong.

The libraries that do this well are native code, which a component cannot load; this is the small part of them that an event's
payload needs.
"""

import dataclasses
import types
from decimal import Decimal
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints


def read(value: object, shape: Any) -> Any:
    """The value as an instance of `shape`.

    Raises `ValueError` with the path of what is missing or wrong, and `TypeError` when `shape` is none that can be read.
    """
    return _read(value, shape, "")


def _read(value: object, shape: Any, path: str) -> Any:
    if shape is Any or shape is object:
        return _plain(value)
    if dataclasses.is_dataclass(shape) and isinstance(shape, type):
        return _read_fields(value, shape, path)
    if shape is None or shape is types.NoneType:
        return _expect(value, value is None, "null", path)
    # True and False are ints in Python, not in JSON.
    if shape is bool:
        return _expect(value, isinstance(value, bool), "true or false", path)
    if shape is str:
        return _expect(value, isinstance(value, str), "a string", path)
    if shape is int:
        return _expect(value, isinstance(value, int) and not isinstance(value, bool), "a whole number", path)
    if shape is float or shape is Decimal:
        return shape(_expect(value, isinstance(value, int | Decimal) and not isinstance(value, bool), "a number", path))
    return _read_generic(value, shape, path)


def _read_generic(value: object, shape: Any, path: str) -> Any:
    origin, arguments = get_origin(shape) or shape, get_args(shape)
    if origin is list:
        items = _expect(value, isinstance(value, list), "a list", path)
        (item_shape,) = arguments or (Any,)
        return [_read(item, item_shape, f"{path}[{index}]") for index, item in enumerate(items)]
    if origin is dict:
        entries = _expect(value, isinstance(value, dict), "an object", path)
        key_shape, value_shape = arguments or (str, Any)
        if key_shape is not str:
            raise TypeError(f"JSON cannot be read into {shape}: the keys of an object are strings")
        return {key: _read(entry, value_shape, _field(path, key)) for key, entry in entries.items()}
    if origin is Union or origin is types.UnionType:
        return _read_union(value, arguments, path)
    raise TypeError(f"JSON cannot be read into {shape}")


def _read_union(value: object, shapes: tuple[Any, ...], path: str) -> Any:
    # With one shape beside null, that shape's own complaint says more than "none of these".
    others = [shape for shape in shapes if shape is not types.NoneType]
    if value is None and len(others) < len(shapes):
        return None
    if len(others) == 1:
        return _read(value, others[0], path)
    for shape in others:
        try:
            return _read(value, shape, path)
        except ValueError:
            continue
    names = " or ".join(getattr(shape, "__name__", str(shape)) for shape in others)
    raise ValueError(f"{_name(path)} is none of {names}")


def _read_fields(value: object, shape: Any, path: str) -> Any:
    entries = _expect(value, isinstance(value, dict), "an object", path)
    given = {}
    for name, field_shape, required in _fields(shape):
        if name in entries:
            given[name] = _read(entries[name], field_shape, _field(path, name))
        elif required:
            raise ValueError(f"{_name(_field(path, name))} is missing")
    return shape(**given)


@cache
def _fields(shape: Any) -> list[tuple[str, Any, bool]]:
    """Name, shape, and whether it must be there, of each field that the constructor takes."""
    hints = get_type_hints(shape)
    missing = dataclasses.MISSING
    return [
        (field.name, hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(shape)
        if field.init
    ]


def _expect(value: Any, fits: bool, wanted: str, path: str) -> Any:
    if not fits:
        raise ValueError(f"{_name(path)} is {_kind(value)}, not {wanted}")
    return value


def _plain(value: object) -> object:
    """The value with floats for the decimals that only a Decimal field asked for."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return value


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int | Decimal):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def _field(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _name(path: str) -> str:
    return f"the field `{path}`" if path else "the whole of it"
