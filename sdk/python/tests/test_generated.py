"""The stand-ins of the generated modules against what componentize-py generates from the contract."""

import ast
import tempfile
import unittest
from pathlib import Path

from outbox_sdk import build

try:
    import componentize_py
except ImportError:
    componentize_py = None

STAND_INS = Path(__file__).parent / "generated" / "wit_world" / "imports"


def shape(file: Path) -> dict[str, list[str]]:
    """Each class with its fields, enum cases and methods, and each function with its parameters."""
    found: dict[str, list[str]] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = [parameter.arg for parameter in node.args.args]
        if isinstance(node, ast.ClassDef):
            found[node.name] = []
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    found[node.name].append(part.target.id)
                elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
                    found[node.name].append(f"{part.targets[0].id} = {ast.unparse(part.value)}")
                elif isinstance(part, ast.FunctionDef):
                    found[f"{node.name}.{part.name}"] = [parameter.arg for parameter in part.args.args]
    return found


@unittest.skipIf(componentize_py is None, "componentize-py is not installed")
class Generated(unittest.TestCase):
    def test_the_stand_ins_have_the_names_fields_and_parameters_of_the_real_modules(self) -> None:
        assert componentize_py is not None
        with tempfile.TemporaryDirectory() as scratch:
            componentize_py.generate_bindings(
                wit_path=[build.wit_folder()],
                worlds=["full-listener"],
                features=[],
                all_features=False,
                world_module=None,
                output_dir=scratch,
                import_interface_names=build._INTERFACE_NAMES,
                export_interface_names=[],
                full_names=False,
            )
            real = Path(scratch, "wit_world", "imports")
            for file in sorted(STAND_INS.glob("[a-z]*.py")):
                with self.subTest(file.name):
                    generated = shape(real / file.name)
                    for name, parts in shape(file).items():
                        # What begins with an underscore belongs to the fake host.
                        if name.startswith("_") or name.partition(".")[2].startswith("_"):
                            continue
                        self.assertEqual(generated.get(name), parts, name)


if __name__ == "__main__":
    unittest.main()
