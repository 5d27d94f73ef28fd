"""The command `outbox-python`, also as `python -m outbox_sdk`."""

import argparse
import sys
from pathlib import Path

from . import __version__
from .build import CAPABILITIES, WORLDS, BuildError, build


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0 when it worked, 1 when a build failed, 2 for a command line that is wrong."""
    given = _parser().parse_args(arguments)
    try:
        built = build(
            given.app,
            given.output,
            world=given.world,
            uses=None if given.uses is None else [name for name in given.uses.split(",") if name],
            paths=given.python_path,
            name=given.name,
            version=given.plugin_version,
        )
    except BuildError as error:
        print(f"outbox-python: {error}", file=sys.stderr)
        return 1
    print(built)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outbox-python", description="Builds outbox listeners from Python.")
    parser.add_argument("--version", action="version", version=f"outbox-sdk {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "build",
        help="make a component of a module",
        description="Makes a component of a module. Prints the path of the component.",
        epilog="example: outbox-python build app.py -o plugins/app.wasm",
    )
    command.add_argument("app", type=Path, help="the module: a file NAME.py, or the folder of a package")
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="the component to write, NAME.wasm; or a folder, where the component gets the name of the plugin",
    )
    command.add_argument(
        "--world",
        choices=WORLDS,
        help="what the component exports; batch-listener takes events many at a time as well "
        "(default: `world` of [tool.outbox] in pyproject.toml, or listener)",
    )
    command.add_argument(
        "--uses",
        metavar="NAMES",
        help=f"which of {','.join(CAPABILITIES)} the component imports, so that it asks the operator for no more; "
        "an empty text for none (default: `uses` of [tool.outbox] in pyproject.toml, or all of them)",
    )
    command.add_argument(
        "-p",
        "--python-path",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder with modules that the plugin imports, besides its own folder and the installed packages; repeatable",
    )
    command.add_argument("--name", help="the name of the plugin (default: the one in pyproject.toml, or the module's)")
    command.add_argument("--plugin-version", help="the version of the plugin (default: the one in pyproject.toml, or 0.0.0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
