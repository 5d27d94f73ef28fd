import contextlib
import io
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from outbox_sdk import build
from outbox_sdk.__main__ import main


class Build(unittest.TestCase):
    """Everything about a build but componentize-py itself."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.worlds: list[str] = []
        self.entries: list[str] = []

        def componentize(wit: Path, python_path: list[Path], output: Path) -> None:
            self.worlds.append(wit.read_text())
            self.entries.append((python_path[0] / "outbox_plugin_entry.py").read_text())
            self.python_path = python_path
            output.write_bytes(b"\0asm")

        self.enterContext(mock.patch.object(build, "_componentize", componentize))

    def write(self, name: str, text: str = "") -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    @contextlib.contextmanager
    def refused(self, why: str) -> Iterator[None]:
        with self.assertRaisesRegex(build.BuildError, why):
            yield

    def test_the_component_is_put_where_it_was_asked_for(self) -> None:
        built = build.build(self.write("app.py"), self.folder / "deep" / "out.wasm")

        self.assertEqual(built.read_bytes(), b"\0asm")
        self.assertEqual([file.name for file in built.parent.iterdir()], ["out.wasm"])
        self.assertEqual(self.python_path[1], self.folder)

    def test_in_a_folder_it_has_the_name_of_the_plugin(self) -> None:
        self.assertEqual(build.build(self.write("order_totals.py"), self.folder / "out").name, "order-totals.wasm")
        self.assertEqual(build.build(self.folder / "order_totals.py", self.folder, name="totals").name, "totals.wasm")

    def test_name_version_world_and_uses_come_from_the_nearest_project(self) -> None:
        self.write(
            "pyproject.toml", '[project]\nname = "totals"\nversion = "3.1"\n[tool.outbox]\nworld = "listener"\nuses = ["http"]\n'
        )

        build.build(self.write("src/app/__init__.py").parent, self.folder / "x.wasm")

        self.assertIn("import app\n_component.end_build('totals', '3.1')", self.entries[0])
        self.assertEqual(
            [line.strip() for line in self.worlds[0].splitlines() if "port" in line],
            [
                "import outbox:listener/log@0.1.0;",
                "import outbox:listener/settings@0.1.0;",
                "import outbox:listener/call@0.1.0;",
                "import outbox:listener/http@0.1.0;",
                "export outbox:listener/handler@0.1.0;",
                "export outbox:listener/settings-check@0.1.0;",
            ],
        )

    def test_a_batch_listener_exports_both_handlers_and_uses_everything(self) -> None:
        build.build(self.write("app.py"), self.folder, world="batch-listener")

        for line in ("import outbox:listener/emit", "import outbox:listener/http", "import outbox:listener/publish", "import outbox:listener/state"):
            self.assertIn(line, self.worlds[0])
        for line in ("export outbox:listener/handler", "export outbox:listener/batch-handler"):
            self.assertIn(line, self.worlds[0])

    def test_what_cannot_be_built_says_why(self) -> None:
        with self.refused("is not a module"):
            build.build(self.folder / "missing.py", self.folder)
        with self.refused("cannot be imported"):
            build.build(self.write("my-app.py"), self.folder)
        with self.refused("has the name of another module, json"):
            build.build(self.write("json.py"), self.folder)
        with self.refused("no world 'x'; it is one of listener, batch-listener"):
            build.build(self.write("app.py"), self.folder, world="x")
        with self.refused("a plugin cannot use 'sockets'; it is any of emit, http, publish, state"):
            build.build(self.write("app.py"), self.folder, uses=["sockets"])
        self.write("pyproject.toml", "[tool.outbox]\nword = 1\n")
        with self.refused("has `word` in \\[tool.outbox\\]"):
            build.build(self.write("app.py"), self.folder)

    def test_the_command_prints_the_path_and_faults_go_to_standard_error(self) -> None:
        output, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
            good = main(["build", str(self.write("app.py")), "-o", str(self.folder / "a.wasm"), "--uses", "state,emit"])
            bad = main(["build", str(self.folder / "no.py"), "-o", str(self.folder)])

        self.assertEqual((good, bad), (0, 1))
        self.assertEqual(output.getvalue(), f"{self.folder / 'a.wasm'}\n")
        self.assertRegex(error.getvalue(), "^outbox-python: .* is not a module")


class Explanations(unittest.TestCase):
    def test_a_traceback_of_the_module_is_all_that_is_told(self) -> None:
        report = (
            "Traceback (most recent call last):\n  File\nKeyError: 1\n\n\nCaused by:\n    KeyError\n\nStack backtrace:\n   0: x"
        )

        self.assertEqual(build._explain(report), "Traceback (most recent call last):\n  File\nKeyError: 1")

    def test_without_one_the_causes_are_told(self) -> None:
        self.assertEqual(build._explain("no world\n\nCaused by:\n    a typo\n\nStack backtrace:\n 0: x"), "no world\n\n    a typo")


class TheContract(unittest.TestCase):
    def test_its_wit_is_there(self) -> None:
        self.assertIn("package outbox:listener@0.1.0;", (build.wit_folder() / "listener.wit").read_text())


if __name__ == "__main__":
    unittest.main()
