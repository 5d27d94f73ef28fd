#!/usr/bin/env python3
"""Says which modules import what stands above them, or each other in a circle: `modules.py`, from anywhere.

The modules of the library stand in an order, that of `host/ARCHITECTURE.md`: each uses those of the lines below its own, and no other. Inside
one of them, in the program and in the packages below the library, the modules of one module do not use each other in a circle, everything below
them included. A module and those inside it may use each other. Cargo keeps the packages apart.

Read are the paths of the source, without what is for tests alone. A name is followed through imports and re-exports to the module that
declares it. What comes out of a macro or through `*` is not seen.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LIBRARY = "crate"
# The root file of each crate, by the name that faults use.
CRATES = {
    LIBRARY: "host/outbox/src/lib.rs",
    "outbox": "host/cli/src/main.rs",
    "outbox_event": "host/event/src/lib.rs",
    "outbox_http": "host/http/src/lib.rs",
    "outbox_listener": "host/listener/src/lib.rs",
    "outbox_sink": "host/sink/src/lib.rs",
    "outbox_store": "host/store/src/lib.rs",
    "outbox_wasm": "host/wasm/src/lib.rs",
}
ORDER = re.compile(r"^```modules\n(.*?)^```$", re.DOTALL | re.MULTILINE)

TOKEN = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | \s+                                  # nothing
    | b?c?r(\#*)".*?"\1 | [bc]?"(?P<text>(?:\\.|[^"\\])*)"          # strings
    | b?'(?:\\(?:u\{\w+\}|x\w\w|.)|[^\\'])' | '\w+                  # characters, lifetimes
    | (?P<word>[A-Za-z_]\w*) | (?P<sign>::|.)""",
    re.DOTALL | re.VERBOSE,
)
WORD = re.compile(r"[A-Za-z_]\w*")
PATH = re.compile(r"\w+(?:::\w+)+")
OPEN, CLOSED = ("(", "[", "{"), (")", "]", "}")
# What begins an item that may have commas in it.
ITEMS = {"const", "enum", "fn", "impl", "mod", "static", "struct", "trait", "type", "union"}

Names = tuple[str, ...]


class Module:
    """A module, which may have several files: one for each feature."""

    def __init__(self, name: str, parent: "Module | None", is_inline: bool = False) -> None:
        self.name, self.parent, self.is_inline = name, parent, is_inline
        self.children: dict[str, Module] = {}
        self.imports: dict[str, list[Names]] = defaultdict(list)
        self.paths: set[Names] = set()

    def line(self) -> "list[Module]":
        """From the root to this module, which for one inside a file is the file's."""
        above = self.parent.line() if self.parent else []
        return above if self.is_inline else [*above, self]

    def all(self) -> "Iterator[Module]":
        yield self
        for child in self.children.values():
            yield from child.all()

    def __str__(self) -> str:
        return "::".join(module.name for module in self.line())

    def follow(self, path: Names, seen: frozenset[tuple["Module", str]] = frozenset()) -> "tuple[Module, bool] | None":
        """The module that a path names, and True; or the one that declares what it names, and False. None for what is not of this crate."""
        module, rest = self, path
        if path[0] == "crate":
            while module.parent:
                module = module.parent
            return module.within(path[1:], seen)
        while rest and rest[0] in ("self", "super"):
            if rest[0] == "super":
                if not module.parent:
                    return None
                module = module.parent
            rest = rest[1:]
        is_known = rest is not path or path[0] in self.children or path[0] in self.imports
        return module.within(rest, seen) if is_known else None

    def within(self, path: Names, seen: frozenset[tuple["Module", str]]) -> "tuple[Module, bool] | None":
        """The same for a path that begins in this module."""
        if not path:
            return self, True
        name, rest = path[0], path[1:]
        if name in self.children:
            return self.children[name].within(rest, seen)
        if name not in self.imports:
            return self, False
        if (self, name) in seen:
            return None
        for target in self.imports[name]:
            if found := self.follow(target, seen | {(self, name)}):
                module, is_module = found
                return module.within(rest, seen | {(self, name)}) if is_module else found
        return None


def tokens(source: str) -> list[str]:
    """Words and signs; of the strings those that are paths, in quotes."""
    found = []
    for token in TOKEN.finditer(source):
        if token["word"] or token["sign"]:
            found.append(token["word"] or token["sign"])
        elif token["text"] is not None:
            found.append(f'"{token["text"]}"')
    return found


def end_of(source: list[str], at: int, last: str) -> int:
    """Behind the next such sign that stands in no brackets, or that ends the brackets which begin here."""
    depth = 0
    while at < len(source):
        sign = source[at]
        depth += (sign in OPEN) - (sign in CLOSED)
        at += 1
        if depth == 0 and sign == last:
            break
    return at


def end_of_item(source: list[str], at: int) -> int:
    """Behind an item, a statement, a field or a variant, and the attributes before it."""
    while source[at] == "#":
        at = end_of(source, at + 1, "]")
    if source[at] == "pub":
        at = end_of(source, at + 1, ")") if source[at + 1] == "(" else at + 1
    if source[at] == "use":
        return end_of(source, at, ";")
    is_item, depth = not ITEMS.isdisjoint(source[at : at + 3]), 0
    while at < len(source):
        sign = source[at]
        depth += (sign in OPEN) - (sign in CLOSED)
        if depth < 0:
            break
        at += 1
        if depth == 0 and (sign in (";", "}") or sign == "," and not is_item):
            break
    return at


def expanded(tree: list[str], before: Names = ()) -> Iterator[tuple[Names, str]]:
    """The paths of a `use`, each with the name that it has here."""
    parts, start = [], 0
    while start < len(tree):
        end = end_of(tree, start, ",")
        parts.append(tree[start:end] if tree[end - 1] != "," else tree[start : end - 1])
        start = end
    for part in parts:
        path, name = before, ""
        while part and part[0] != "{":
            if part[0] == "as":
                name = part[1]
                break
            if part[0] == "*":
                name = "*"
            elif part[0] != "::" and not (part[0] == "self" and path):
                path = (*path, part[0])
            part = part[1:]
        if part and part[0] == "{":
            yield from expanded(part[1:-1], path)
        elif path:
            yield path, name or path[-1]


def read(module: Module, file: Path, folder: Path) -> None:
    """Reads a file of a module; those of its children are in `folder`."""
    source = tokens(file.read_text(encoding="utf-8"))
    scopes, depth, at, named = [(module, 0)], 0, 0, None
    while at < len(source):
        here, word = scopes[-1][0], source[at]
        follows = source[at + 1] if at + 1 < len(source) else ""
        if word == "#" and follows in ("[", "!"):
            start = at + 1 + (follows == "!")
            at = end_of(source, start, "]")
            attribute = source[start + 1 : at - 1]
            if attribute[:3] == ["cfg", "(", "test"] or attribute[:5] == ["cfg", "(", "all", "(", "test"]:
                at = end_of_item(source, at)
                continue
            if attribute[:2] == ["path", "="]:
                named = file.parent / attribute[2].strip('"')
            here.paths.update(tuple(text.strip('"').split("::")) for text in attribute if PATH.fullmatch(text.strip('"')))
            continue
        if word == "mod" and source[at + 2] in (";", "{"):
            is_inline = source[at + 2] == "{"
            child = here.children.setdefault(follows, Module(follows, here, is_inline))
            if is_inline:
                scopes.append((child, depth))
                depth += 1
            else:
                inner = folder.joinpath(*(scope.name for scope, _ in scopes[1:]), follows)
                beside = [named] if named else [inner.with_suffix(".rs"), inner / "mod.rs"]
                read(child, next(path for path in beside if path.exists()), inner)
            at, named = at + 3, None
        elif word == "use" and follows != "<":
            end = end_of(source, at, ";")
            for path, name in expanded(source[at + 1 : end - 1]):
                here.paths.add(path)
                here.imports[name].append(path)
            at = end
        elif WORD.fullmatch(word) and follows == "::" and source[at - 1] != "::":
            path = [word]
            while source[at + 1 : at + 2] == ["::"] and WORD.fullmatch(source[at + 2]):
                at += 2
                path.append(source[at])
            here.paths.add(tuple(path))
            at += 1
        else:
            depth += (word == "{") - (word == "}")
            if len(scopes) > 1 and scopes[-1][1] == depth:
                scopes.pop()
            at += 1


def uses(root: Module) -> dict[tuple[Module, Module], set[str]]:
    """Which module of a crate uses which other, and by which paths."""
    found = defaultdict(set)
    for module in root.all():
        for path in module.paths:
            if target := module.follow(path):
                user, used = module.line()[-1], target[0].line()[-1]
                if user is not used:
                    found[user, used].add("::".join(path))
    return found


def beside_each_other(root: Module) -> dict[Module, dict[tuple[Module, Module], list[str]]]:
    """For each module which of its children uses which other, and where: itself, or something inside it."""
    found = defaultdict(lambda: defaultdict(list))
    for (user, used), paths in uses(root).items():
        above, below = user.line(), used.line()
        same = sum(1 for one, other in zip(above, below) if one is other)
        if same < min(len(above), len(below)):
            found[above[same - 1]][above[same], below[same]].append(f"{user} uses {used}: {', '.join(sorted(paths))}")
    return found


def circles(arrows: dict[tuple[Module, Module], list[str]]) -> list[set[Module]]:
    """The largest sets of modules each of which reaches every other."""
    reached = defaultdict(set)
    for user, used in arrows:
        reached[user].add(used)
    grown = True
    while grown:
        grown = False
        for module in reached:
            more = set().union(*(reached.get(used, set()) for used in reached[module])) - reached[module]
            grown = grown or bool(more)
            reached[module] |= more
    found = []
    for module in [module for module in reached if module in reached[module]]:
        circle = {other for other in reached[module] if module in reached.get(other, set())}
        if circle not in found:
            found.append(circle)
    return found


def out_of_order(root: Module, arrows: dict[tuple[Module, Module], list[str]]) -> Iterator[str]:
    """What is wrong with the modules of the library, held against their order."""
    page = REPOSITORY / "host/ARCHITECTURE.md"
    if not (order := ORDER.search(page.read_text(encoding="utf-8"))):
        yield f"{page.name} has no block ```modules"
        return
    lines = [line.split() for line in order[1].splitlines()]
    place = {module: number for number, line in enumerate(lines) for module in line}
    for module in sorted(place.keys() ^ root.children.keys()):
        yield f"{module} is a module {'of ' + page.name if module in place else 'of the source'} alone"
    for (user, used), where in arrows.items():
        if place.get(user.name, 0) >= place.get(used.name, len(lines)):
            yield from (f"{line}; {used.name} does not stand below {user.name} in {page.name}" for line in where)


def main() -> None:
    faults = []
    for crate, path in CRATES.items():
        root, file = Module(crate, None), REPOSITORY / path
        read(root, file, file.parent)
        for module, arrows in beside_each_other(root).items():
            if crate == LIBRARY and module is root:
                faults += out_of_order(root, arrows)
                continue
            for circle in circles(arrows):
                faults.append(f"a circle in {module}: {', '.join(sorted(child.name for child in circle))}")
                faults += [f"  {line}" for ends, where in arrows.items() if circle.issuperset(ends) for line in where]
    print(*faults, sep="\n", end="\n" if faults else "")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
