left_ms = 5000


def remaining_ms() -> int:
    return left_ms
