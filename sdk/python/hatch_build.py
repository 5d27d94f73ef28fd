"""Puts the contract's WIT into the wheel and the source archive, so that the repository holds one copy of it."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds what lies above this folder in the repository, and beside this file in a source archive."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each archive is made."""
        here = Path(self.root)
        unpacked = here / "wit"
        above = here if unpacked.is_dir() else here.parents[1]
        package = "outbox_sdk/" if self.target_name == "wheel" else ""
        for name in ("wit", "LICENSE-MIT", "LICENSE-APACHE"):
            source = above / name
            if not source.exists():
                raise FileNotFoundError(f"{source} is missing; build from the repository or from the source archive")
            build_data["force_include"][str(source)] = package + name
