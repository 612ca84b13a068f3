#!/usr/bin/env python3
"""The Python programs of an installation keep to the syntax and the library of Python 3.6.

    check_python.py ROOT

The files that say so in older versions (tools/job and so on, trireme_scripts/__init__.py) keep to syntax that these
understand. Names of the library that came later are in LATER; the list has those that are easily taken.
"""
import ast
import sys
from pathlib import Path

LOWEST = (3, 6)
ENTRIES = (3, 4)  # the oldest syntax that ast checks; it has no f-strings
LATER_MODULES = {"__future__.annotations": "3.7", "contextvars": "3.7", "dataclasses": "3.7", "graphlib": "3.9",
                 "importlib.metadata": "3.8", "importlib.resources": "3.7", "tomllib": "3.11", "zoneinfo": "3.9"}
LATER_ATTRIBUTES = {
    "bit_count": "3.10", "cached_property": "3.8", "cancel_futures": "3.9", "enterContext": "3.11", "fmean": "3.8",
    "fromisocalendar": "3.8", "fromisoformat": "3.7", "get_running_loop": "3.7", "hardlink_to": "3.10", "is_relative_to": "3.9",
    "isascii": "3.7", "isqrt": "3.8", "link_to": "3.8", "monotonic_ns": "3.7", "nullcontext": "3.7", "pairwise": "3.10",
    "parse_intermixed_args": "3.7", "parse_known_intermixed_args": "3.7", "perf_counter_ns": "3.7", "randbytes": "3.9",
    "reconfigure": "3.7", "removeprefix": "3.9", "removesuffix": "3.9", "time_ns": "3.7", "unparse": "3.9", "with_stem": "3.9",
    "asyncio.run": "3.7", "datetime.UTC": "3.11", "functools.cache": "3.9", "math.comb": "3.8", "math.dist": "3.8",
    "math.lcm": "3.9", "math.perm": "3.8", "math.prod": "3.8", "shlex.join": "3.8", "signal.strsignal": "3.8"}
LATER_KEYWORDS = {"capture_output": "3.7", "text": "3.7", "missing_ok": "3.8", "dirs_exist_ok": "3.8", "exit_on_error": "3.9",
                  "strict": "3.10"}
GENERICS = {"dict", "frozenset", "list", "set", "tuple", "type"}


def files(root):
    """(path, oldest syntax) of all files."""
    package = root / "tools/python"
    for path in sorted(package.rglob("*.py")):
        yield path, ENTRIES if path.name == "__init__.py" else LOWEST
    for path in sorted((root / "tools").iterdir()):
        if path.is_file() and "import trireme_scripts" in path.read_text():
            yield path, ENTRIES


def annotations_of(node):
    found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    return [part for part in found if part is not None]


def later(tree):
    """(line, name, version) of each name and form that came after LOWEST."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""] + [f"{node.module}.{name.name}" for name in node.names]
        else:
            names = []
        for name in names:
            for known in (name, name.rpartition(".")[2]):
                version = LATER_MODULES.get(name) or LATER_ATTRIBUTES.get(known)
                if version:
                    yield line, name, version
                    break
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            version = LATER_ATTRIBUTES.get(f"{owner}.{node.attr}") or LATER_ATTRIBUTES.get(node.attr)
            if version:
                yield line, node.attr, version
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "")
            if name == "breakpoint":
                yield line, name, "3.7"
            for keyword in node.keywords:
                if keyword.arg in LATER_KEYWORDS:
                    yield line, f"{keyword.arg}=", LATER_KEYWORDS[keyword.arg]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and any(
                isinstance(side, (ast.Dict, ast.DictComp)) for side in (node.left, node.right)):
            yield line, "dict | dict", "3.9"
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and any(
                isinstance(part, ast.Starred) for part in node.value.elts) and node.value.col_offset == node.value.elts[0].col_offset:
            yield line, "return *a, b without parentheses", "3.8"
        for annotation in annotations_of(node):
            for part in ast.walk(annotation):
                if isinstance(part, ast.Subscript) and getattr(part.value, "id", "") in GENERICS:
                    yield part.lineno, f"{part.value.id}[...]", "3.9"
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
                    yield part.lineno, "a | b in an annotation", "3.10"


def violations(root):
    found = list(files(root))
    if not any(oldest == LOWEST for _, oldest in found) or not any(path.suffix == "" for path, _ in found):
        yield "tools: the Python programs of an installation were not found"
    for path, oldest in found:
        place = path.relative_to(root)
        try:
            tree = ast.parse(path.read_text(), str(place), feature_version=oldest)
        except SyntaxError as error:
            yield f"{place}:{error.lineno}: {error.msg} (it has to run with Python {oldest[0]}.{oldest[1]})"
            continue
        for line, name, version in later(tree):
            yield f"{place}:{line}: {name} needs Python {version}; these programs run with {LOWEST[0]}.{LOWEST[1]}"


def main():
    found = list(violations(Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "the installed Python programs keep to Python 3.6")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
