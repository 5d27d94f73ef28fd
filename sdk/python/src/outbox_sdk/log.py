"""Lines for the host's log.

Fields are given by name, with values of any type::

    log.info("order placed", order_id=7, total=9.5)

The host adds the plugin, its digest and the event's id to every line, and cuts off what is too much. In a component the standard
library's `logging` leads here too, unless the plugin gave its root logger a handler of its own. Without a host, such as in a unit
test, lines go to standard error.
"""

import logging
import traceback

from . import _host
from ._host import Level
from ._values import text

__all__ = ["Level", "LogHandler", "debug", "enabled", "error", "info", "trace", "warn", "write"]


def trace(message: str, /, **fields: object) -> None:
    """Writes a line about every step."""
    write(Level.TRACE, message, **fields)


def debug(message: str, /, **fields: object) -> None:
    """Writes a line with details for finding a fault."""
    write(Level.DEBUG, message, **fields)


def info(message: str, /, **fields: object) -> None:
    """Writes a line about what happened."""
    write(Level.INFO, message, **fields)


def warn(message: str, /, **fields: object) -> None:
    """Writes a line about something unexpected."""
    write(Level.WARN, message, **fields)


def error(message: str, /, **fields: object) -> None:
    """Writes a line about something that failed."""
    write(Level.ERROR, message, **fields)


def write(level: Level, message: str, /, **fields: object) -> None:
    """Writes a line at a level that is a value."""
    if enabled(level):
        _host.current.write_log(level, text(message), [(text(name), text(value)) for name, value in fields.items()])


def enabled(level: Level) -> bool:
    """Whether the host keeps lines of this level; for a line whose making costs something."""
    most = _host.current.max_level()
    return most is not None and level >= most


class LogHandler(logging.Handler):
    """Leads the standard library's `logging` to the host's log.

    What a record was given with `extra=` becomes fields, and so do its logger and its exception. The component installs one on
    the root logger when the plugin's module has put no other there.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record as one line."""
        try:
            level = _level(record.levelno)
            if enabled(level):
                fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
                if record.name != "root":
                    fields["logger"] = record.name
                if record.exc_info and record.exc_info[1] is not None:
                    fields["exception"] = "".join(traceback.format_exception(record.exc_info[1])).strip()
                named = [(text(name), text(value)) for name, value in fields.items()]
                _host.current.write_log(level, text(self.format_message(record)), named)
        except Exception:
            self.handleError(record)

    def format_message(self, record: logging.LogRecord) -> str:
        """The line's text: what the handler's formatter makes of the record if it has one, else the message alone."""
        return self.formatter.format(record) if self.formatter else record.getMessage()


# What every record carries; anything else came from `extra=`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _level(number: int) -> Level:
    if number >= logging.ERROR:
        return Level.ERROR
    if number >= logging.WARNING:
        return Level.WARN
    if number >= logging.INFO:
        return Level.INFO
    return Level.DEBUG if number >= logging.DEBUG else Level.TRACE
