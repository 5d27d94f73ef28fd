"""Stands in for what componentize-py generates for every component. `test_generated.py` compares the two."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
E = TypeVar("E")


@dataclass
class Ok(Generic[T]):
    value: T


@dataclass(frozen=True)
class Err(Generic[E], Exception):
    value: E


Result = Ok[T] | Err[E]
