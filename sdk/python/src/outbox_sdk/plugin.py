"""The whole plugin: what it says of itself, and how an event finds its function."""

import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from . import log
from .answer import Answer, Dead, Done, Failure, Outcome, RetryAfter, failure_from
from .event import Event, Route

Listener = TypeVar("Listener", bound=Callable[[Event], Answer])
BatchListener = TypeVar("BatchListener", bound=Callable[[list[Event]], Sequence[Answer] | None])
SettingsCheck = TypeVar("SettingsCheck", bound=Callable[[], None])


class Plugin:
    """Routes and their functions. A component has one, which the decorators of this module fill."""

    def __init__(self) -> None:
        self._singles: dict[Route, Callable[[Event], Answer]] = {}
        self._batches: dict[Route, Callable[[list[Event]], Sequence[Answer] | None]] = {}
        self._checks: list[Callable[[], None]] = []

    def listener(self, aggregate_type: str, event_type: str) -> Callable[[Listener], Listener]:
        """See the function `listener`."""

        def decorate(function: Listener) -> Listener:
            self._singles[self._free(aggregate_type, event_type, function)] = function
            return function

        return decorate

    def batch_listener(self, aggregate_type: str, event_type: str) -> Callable[[BatchListener], BatchListener]:
        """See the function `batch_listener`."""

        def decorate(function: BatchListener) -> BatchListener:
            self._batches[self._free(aggregate_type, event_type, function)] = function
            return function

        return decorate

    def check_settings(self, function: SettingsCheck) -> SettingsCheck:
        """See the function `check_settings`."""
        self._checks.append(function)
        return function

    def _free(self, aggregate_type: str, event_type: str, function: Callable[..., object]) -> Route:
        """The route, which no other function may have: the host asks one listener for each."""
        route = Route(aggregate_type, event_type)
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{_name(function)} answers {route} and is async; a listener is an ordinary function")
        taken = self._singles.get(route) or self._batches.get(route)
        # The same function again is a module that was reloaded.
        if taken is not None and _name(taken) != _name(function):
            raise ValueError(f"{route} is answered by {_name(taken)} already, so {_name(function)} cannot answer it too")
        return route

    def routes(self) -> list[Route]:
        """The routes that the plugin answers, in the order in which they were listed."""
        return [*self._singles, *self._batches]

    def answer(self, event: Event) -> Outcome:
        """Answers one event. Whatever its function raises becomes a failure."""
        single = self._singles.get(event.route)
        if single is None:
            return self.answer_all([event])[0]
        try:
            return _outcome(single, single(event))
        # SystemExit too: `sys.exit` in a library must not take the component down.
        except (Exception, SystemExit) as error:
            return _failed(error)

    def answer_all(self, events: list[Event]) -> list[Outcome]:
        """Answers events that came together, in order. What one of them fails with touches no other."""
        outcomes: list[Outcome] = [Done()] * len(events)
        together: dict[Route, list[int]] = {}
        for index, event in enumerate(events):
            if event.route in self._singles:
                outcomes[index] = self.answer(event)
            elif event.route in self._batches:
                together.setdefault(event.route, []).append(index)
            else:
                outcomes[index] = Failure.unrecoverable(f"this plugin does not answer {event.route}")
        for route, indices in together.items():
            answers = _answer_batch(self._batches[route], [events[index] for index in indices])
            for index, outcome in zip(indices, answers, strict=True):
                outcomes[index] = outcome
        return outcomes

    def settings_complaint(self) -> str | None:
        """What the plugin's own look at its settings says against them; None when it has nothing to say."""
        for check in self._checks:
            try:
                check()
            except (Exception, SystemExit) as error:
                # The type of a ValueError tells the operator nothing.
                return str(error) if type(error) is ValueError and error.args else failure_from(error).message
        return None


def _answer_batch(function: Callable[[list[Event]], Sequence[Answer] | None], events: list[Event]) -> list[Outcome]:
    try:
        answers = function(events)
        if answers is None:
            return [Done()] * len(events)
        if len(answers) != len(events):
            raise TypeError(f"{_name(function)} returned {len(answers)} answers to {len(events)} events")
        return [_outcome(function, answer) for answer in answers]
    except (Exception, SystemExit) as error:
        return [_failed(error)] * len(events)


def _failed(error: BaseException) -> Failure:
    # A failure was raised on purpose; of anything else somebody will look for the place.
    if not isinstance(error, Failure) and log.enabled(log.Level.DEBUG):
        log.debug("a listener raised an exception", traceback="".join(traceback.format_exception(error)).strip())
    return failure_from(error)


def _outcome(function: Callable[..., object], answer: object) -> Outcome:
    if answer is None:
        return Done()
    if isinstance(answer, Done | RetryAfter | Dead):
        return answer
    raise TypeError(
        f"{_name(function)} returned {type(answer).__qualname__}; a listener returns None, done(), retry_after(…) or dead(…)"
    )


def _name(function: Callable[..., object]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"


this_plugin = Plugin()
"""The plugin that this component is."""


def listener(aggregate_type: str, event_type: str) -> Callable[[Listener], Listener]:
    """Makes a function the listener of a route; it may be given several times, for several routes.

    The function takes the `Event` and returns None, `done()`, `retry_after(…)` or `dead(…)`. A `Failure` that it raises says what
    follows; any other exception becomes a retryable failure that has the exception's type, text and causes in its message.

    A writer that names no aggregate type writes `__GLOBAL__`. A route that has a listener already raises `ValueError`.
    """
    return this_plugin.listener(aggregate_type, event_type)


def batch_listener(aggregate_type: str, event_type: str) -> Callable[[BatchListener], BatchListener]:
    """Makes a function the listener of a route that takes many events at a time.

    The function takes a list of events and returns None when all are done, or one answer for each, in order. An exception fails
    all of them. Lists longer than one need the world `batch-listener` and `isolation = "batch"` in the plugin's manifest.
    """
    return this_plugin.batch_listener(aggregate_type, event_type)


def check_settings(function: SettingsCheck) -> SettingsCheck:
    """Makes a function the plugin's own look at its settings, called when the component is loaded.

    An exception keeps this version from serving, and its text is shown to the operator: `raise ValueError("…")`.
    """
    return this_plugin.check_settings(function)
