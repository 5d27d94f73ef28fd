"""Write outbox listeners in Python.

A plugin is a module with one function for each route::

    from dataclasses import dataclass

    from outbox_sdk import Answer, Event, dead, listener, log

    @dataclass
    class OrderPlaced:
        order_id: int
        total: float

    @listener("Order", "OrderPlaced")
    def placed(event: Event) -> Answer:
        order = event.json(OrderPlaced)         # a payload that is something else is an unrecoverable failure
        if order.total <= 0:
            return dead("an order must cost something")
        log.info("order placed", order_id=order.order_id, attempt=event.attempt)
        return None                             # the event is finished

``outbox-python build app.py -o plugins/app.wasm`` makes the component.

What a listener answers:

==========================================================  ============================================  =======
Answer                                                      What follows                                  Counted
==========================================================  ============================================  =======
``return None`` or ``return done()``                        the event is finished
``return retry_after(30)``                                  delivered again after 30 seconds              no
``return dead("why")``                                      never delivered again
``raise Failure.retryable("why")``, or any other exception  delivered again when the retry policy says    yes
``raise Failure.retryable_after(30, "why")``                delivered again after 30 seconds              yes
``raise Failure.unrecoverable("why")``                      never delivered again
==========================================================  ============================================  =======

An event is delivered **at least** once: ``event.id`` stays the same and is the key for deduplication. A listener may find itself
in a fresh instance or in one that served other events before: keep nothing in module variables that must survive, and rely on
nothing to be gone.

Every module must be imported while the component is built, which is to say at the top of a file: there is no file system in the
sandbox, so an ``import`` inside a function fails there unless the module is loaded already.
"""

from . import call, log, publish, settings, state
from ._emit import Envelope, emit
from .answer import Answer, Dead, Done, Failure, FailureKind, Outcome, RetryAfter, dead, done, retry_after
from .event import Event, Route
from .plugin import batch_listener, check_settings, listener
from .refusal import RefusalKind, Refused

# `http` is not imported here: a plugin that makes no requests need not carry it. `from outbox_sdk import http` loads it.

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Dead",
    "Done",
    "Envelope",
    "Event",
    "Failure",
    "FailureKind",
    "Outcome",
    "RefusalKind",
    "Refused",
    "RetryAfter",
    "Route",
    "batch_listener",
    "call",
    "check_settings",
    "dead",
    "done",
    "emit",
    "listener",
    "log",
    "publish",
    "retry_after",
    "settings",
    "state",
]
