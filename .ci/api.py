#!/usr/bin/env python3
"""Lists what a crate offers, one item a line and sorted, as its documentation by rustdoc shows it: `api.py target/doc/outbox`.

A line is the path of an item and its declaration, one of its own functions or constants, or a trait that it implements; or a re-export.
An item of another crate has the path that this crate gives it, and is read from the documentation of its own crate, which must lie
beside: rustdoc shows the signatures of re-exported items in another form, and without the values of constants.
Left out is what every type has without being asked (auto traits, blanket implementations), and what is hidden.
"""

import html
import re
import sys
from pathlib import Path

ITEM = re.compile(r'href="((?:[\w/]+/)?(?:struct|enum|trait|fn|type|constant|macro|derive|attr|static|union)\.\w+\.html)"')
DECLARATION = re.compile(r'<pre class="rust item-decl"><code>(.*?)</code></pre>', re.DOTALL)
REEXPORT = re.compile(r'id="reexport\.\w+"><code>(.*?)</code>', re.DOTALL)
HEAD = re.compile(r'<section id="(method|tymethod|associatedconstant|associatedtype|impl)[.-][^"]*"[^>]*>.*?<h[34] class="code-header">(.*?)</h[34]>', re.DOTALL)
SOURCE = re.compile(r'<a class="src[^"]*" href="(?:\.\./)+src/(\w+)/')
# What follows on a page comes from elsewhere.
TRAITS = re.compile(r'id="trait-implementations(?:-list)?"')
ELSEWHERE = re.compile(r'id="(?:deref-methods[^"]*|synthetic-implementations|blanket-implementations|implementors|foreign-impls)"')


def text(markup: str) -> str:
    """What a reader sees, in one line."""
    spaced = re.sub(r"<(?:br|div|/div|span class=\"(?:item-spacer|where)[^>]*)[^>]*>", " ", markup)
    plain = html.unescape(re.sub(r"<[^>]+>", "", spaced)).replace("\u200b", "")
    plain = re.sub(r"Show \d+ (fields|methods|variants)", "", plain)
    # What #[async_trait] makes of an async function, said short.
    plain = re.sub(r"'life\d+ |'(life\d+|async_trait),? ?(?=[^:]*>\()", "", plain)
    plain = re.sub(r"Pin<Box<dyn Future<Output = (.*)> \+ Send \+ 'async_trait>>.*", r"async \1", plain, flags=re.DOTALL)
    return re.sub(r"<>|(?<=[(<\[]) | (?=[)\]])|,(?= ?[)>])", "", " ".join(plain.split()))


def before(page: str, mark: re.Pattern[str]) -> tuple[str, str]:
    """A page up to a mark, and from there."""
    found = mark.search(page)
    at = found.start() if found else len(page)
    return page[:at], page[at:]


def page_of(root: Path, page: str) -> str:
    """The page of an item, from the documentation of the crate that declares it."""
    shown = (root / page).read_text(encoding="utf-8")
    source = SOURCE.search(shown)
    if not source or source[1] == root.name:
        return shown
    own = root.parent / source[1]
    pages = set(ITEM.findall((own / "all.html").read_text(encoding="utf-8")))
    parts = page.split("/")
    # The root of the declaring crate comes first if a module of this crate shows the root: its modules may use the same names.
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    same = [end for end in ends if end in pages][:1] or [other for other in pages if other.rpartition("/")[2] == parts[-1]]
    if len(same) != 1:
        sys.exit(f"{page} is declared in {own.name}, which has {len(same)} pages of this name")
    return (own / same[0]).read_text(encoding="utf-8")


def lines_of(page: str):
    """What the page of an item declares."""
    for declaration in DECLARATION.findall(page)[:1]:
        # The functions of a trait follow one by one.
        yield re.sub(r"(\btrait .*?)\{.*", r"\1", text(declaration)).strip()
    own, after = before(page, TRAITS)
    own, deref = before(own, ELSEWHERE)
    for kind, head in HEAD.findall(own):
        if kind != "impl":
            yield text(head)
    # Traits stand after the methods by Deref, when there are any.
    traits, _ = before(after or deref, re.compile(ELSEWHERE.pattern.replace(r"deref-methods[^\"]*|", "")))
    for kind, head in HEAD.findall(traits):
        if kind == "impl" and " for " in text(head) and "StructuralPartialEq" not in head:
            yield text(head)


def main() -> None:
    root = Path(sys.argv[1])
    pages = sorted(set(ITEM.findall((root / "all.html").read_text(encoding="utf-8"))))
    if not pages:
        sys.exit(f"{root}/all.html names no items; make it by cargo doc")
    lines = set()
    for page in pages:
        folder, _, file = page.rpartition("/")
        path = "::".join([root.name, *filter(None, folder.split("/")), file.split(".")[1]])
        lines.update(f"{path}: {line}" for line in lines_of(page_of(root, page)))
        index = (root / folder / "index.html").read_text(encoding="utf-8")
        module = "::".join([root.name, *filter(None, folder.split("/"))])
        lines.update(f"{module}: {text(export)}" for export in REEXPORT.findall(index))
    index = (root / "index.html").read_text(encoding="utf-8")
    lines.update(f"{root.name}: {text(export)}" for export in REEXPORT.findall(index))
    print(*sorted(lines), sep="\n")


if __name__ == "__main__":
    main()
