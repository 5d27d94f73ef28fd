from .poll import Pollable

durations: list[int] = []


def subscribe_duration(when: int) -> Pollable:
    """A timer that is always up, so that whatever is not ready at once is late."""
    durations.append(when)
    return Pollable(lambda: True)
