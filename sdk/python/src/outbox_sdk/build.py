"""Makes a component of a Python module, with componentize-py.

The component is CPython itself with the plugin's modules already imported, as one memory image; whatever was not imported by then
cannot be imported later. It keeps its WASI imports (`--stub-wasi` of componentize-py is not used): stubs would freeze the seed of
`random` and the bytes of `uuid4` at what they were during the build, the same for every event, would make `time.time()` a trap,
and would lose standard error, where the only trace of a crash is. The host links all of WASI and grants none of it.
"""

import keyword
import os
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

COMPONENTIZE_PY = "0.25.1"
"""The version of componentize-py whose generated modules the SDK was written for."""

CONTRACT = "0.1.0"
"""The version of the contract, and the folder of its WIT."""

WORLDS = ("listener", "batch-listener")
"""What a component exports: `batch-listener` takes events many at a time as well."""

CAPABILITIES = ("emit", "http", "publish", "state")
"""The interfaces that a component imports only when it uses them."""

_ENTRY = "outbox_plugin_entry"

# One name in every world: by itself componentize-py names the types after their package once two have types.
_INTERFACE_NAMES = [(f"outbox:listener/types@{CONTRACT}", "listener_types")]


class BuildError(Exception):
    """Why no component was made."""


def build(
    app: Path,
    output: Path,
    *,
    world: str | None = None,
    uses: Iterable[str] | None = None,
    paths: Iterable[Path] = (),
    name: str | None = None,
    version: str | None = None,
) -> Path:
    """Makes a component of the module `app`, and returns the path of the file. Raises `BuildError`.

    What is not given is taken from the nearest pyproject.toml: name and version from `[project]`, world and uses from
    `[tool.outbox]`.
    """
    folder, module = _module(app)
    project, settings = _project(folder)
    name = name or project.get("name") or module.replace("_", "-")
    version = version or project.get("version") or "0.0.0"
    world = world or settings.get("world", "listener")
    used = _capabilities(settings.get("uses", CAPABILITIES) if uses is None else uses)
    output = output if output.suffix == ".wasm" else output / f"{name}.wasm"
    with tempfile.TemporaryDirectory(prefix="outbox-python-") as scratch:
        entry, wit = Path(scratch, "entry"), Path(scratch, "plugin.wit")
        entry.mkdir()
        Path(entry, f"{_ENTRY}.py").write_text(_entry(module, name, version), encoding="utf-8")
        wit.write_text(_world(world, used), encoding="utf-8")
        _componentize(wit, [entry, folder, *paths, *_installed()], Path(scratch, "component.wasm"))
        _publish(Path(scratch, "component.wasm"), output)
    return output


def wit_folder() -> Path:
    """The folder of the contract's WIT: the one in the package, or, where the SDK is used from its sources, the one there."""
    package = Path(__file__).parent
    # The package itself, then the folder of a source archive, then the repository.
    for place in (package, *list(package.parents)[1:4]):
        folder = place / "wit" / CONTRACT
        if folder.is_dir():
            return folder
    raise BuildError(f"the WIT of the contract {CONTRACT} is missing from {package}; install outbox-sdk again")


def _module(app: Path) -> tuple[Path, str]:
    """The folder that the module is imported from, and its name."""
    app = app.resolve()
    if not (app.is_file() and app.suffix == ".py") and not (app / "__init__.py").is_file():
        raise BuildError(f"{app} is not a module: give a file NAME.py, or a folder with an __init__.py")
    module = app.stem if app.is_file() else app.name
    if not module.isidentifier() or keyword.iskeyword(module):
        raise BuildError(f"{app.name} cannot be imported: a module is named with letters, digits and underscores")
    # In the component the plugin's folder comes before the installed packages and the generated modules before both.
    if module in sys.stdlib_module_names or module in ("outbox_sdk", "wit_world", "componentize_py_types", "poll_loop"):
        raise BuildError(f"{app.name} has the name of another module, {module}, which the component needs; rename it")
    return app.parent, module


def _project(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """`[project]` and `[tool.outbox]` of the nearest pyproject.toml, from the module's folder upwards."""
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            try:
                tables = tomllib.loads(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise BuildError(f"{file} cannot be read: {error}") from error
            settings = tables.get("tool", {}).get("outbox", {})
            if unknown := sorted(settings.keys() - {"world", "uses"}):
                raise BuildError(f"{file} has `{unknown[0]}` in [tool.outbox], which takes `world` and `uses`")
            return tables.get("project", {}), settings
    return {}, {}


def _capabilities(uses: Iterable[str]) -> list[str]:
    used = list(dict.fromkeys(uses))
    for capability in used:
        if capability not in CAPABILITIES:
            raise BuildError(f"a plugin cannot use {capability!r}; it is any of {', '.join(CAPABILITIES)}")
    return used


def _world(world: str, used: list[str]) -> str:
    """The world of this component: the contract's, less the interfaces that it does not use, with the optional export."""
    if world not in WORLDS:
        raise BuildError(f"there is no world {world!r}; it is one of {', '.join(WORLDS)}")
    package = f"outbox:listener/{{}}@{CONTRACT};"
    lines = ["import " + package.format(interface) for interface in ("log", "settings", "call", *used)]
    lines += ["export " + package.format(interface) for interface in ("handler", "settings-check")]
    if world == "batch-listener":
        lines.append("export " + package.format("batch-handler"))
    return "package outbox:python-plugin;\n\nworld plugin {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _entry(module: str, name: str, version: str) -> str:
    """The module that componentize-py starts from. The plugin itself need not know of the contract's classes."""
    return f"""\
import sys

# The folders of the build are mounted writable, and nothing may be left in the plugin's.
sys.dont_write_bytecode = True

from outbox_sdk import _component

_component.begin_build()
import {module}
_component.end_build({name!r}, {version!r})

from outbox_sdk._component import BatchHandler, Handler, SettingsCheck
"""


def _installed() -> list[Path]:
    """Where the SDK and the installed packages are."""
    folders = [Path(__file__).parents[1], Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib"))]
    return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def _componentize(wit: Path, python_path: list[Path], output: Path) -> None:
    try:
        import componentize_py

        found = metadata.version("componentize-py")
    except (metadata.PackageNotFoundError, ImportError):
        raise BuildError(f"componentize-py is missing: pip install componentize-py=={COMPONENTIZE_PY}") from None
    if found != COMPONENTIZE_PY:
        wanted = COMPONENTIZE_PY
        raise BuildError(f"componentize-py is {found}, and must be {wanted}: pip install componentize-py=={wanted}")
    try:
        # The function and not the command: the command adds every site-packages that it can find.
        componentize_py.componentize(
            wit_path=[wit_folder(), wit],
            worlds=["outbox:python-plugin/plugin"],
            features=[],
            all_features=False,
            world_module=None,
            python_path=[str(folder) for folder in python_path],
            module_worlds=[],
            app_name=_ENTRY,
            output_path=output,
            stub_wasi=False,
            import_interface_names=_INTERFACE_NAMES,
            export_interface_names=[],
            full_names=False,
            intersect_world=None,
        )
    # It raises AssertionError for everything; what the module printed and raised is in its text.
    except AssertionError as error:
        raise BuildError(f"the module could not be made a component:\n{_explain(str(error))}") from error


def _explain(report: str) -> str:
    """What componentize-py says, without its own stack; without its summary too where the module's traceback says it all."""
    report = report.partition("\n\nStack backtrace:")[0]
    printed, _, causes = report.partition("\n\nCaused by:")
    return printed.strip() if "Traceback (most recent call last)" in printed else f"{printed}\n{causes}".strip()


def _publish(component: Path, output: Path) -> None:
    """Puts the component in its place whole or not at all, since a host may be watching the folder."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        beside = output.with_name(f".{output.name}.tmp")
        beside.write_bytes(component.read_bytes())
        os.replace(beside, output)
    except OSError as error:
        raise BuildError(f"{output} could not be written: {error}") from error
