config: dict[str, str] = {}
secrets: dict[str, str] = {}


def get(key: str) -> str | None:
    return config.get(key)


def get_all() -> list[tuple[str, str]]:
    return sorted(config.items())


def secret(key: str) -> str | None:
    return secrets.get(key)
