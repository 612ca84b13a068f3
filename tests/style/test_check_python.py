#!/usr/bin/env python3
"""check_python.py finds what Python 3.6 does not have; trireme_scripts.toml reads as tomllib does; old versions get a message."""
import contextlib
import io
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tools/python")]
import check_python  # noqa: E402
import trireme_scripts  # noqa: E402
from trireme_scripts import toml  # noqa: E402

ENTRY = "import trireme_scripts\ntrireme_scripts.need_python()\n"
GOOD = 'import json\nA = f"{json}" if json else "b"\nB = dict({}, **{})\ndef f(a: int) -> "c":\n    return (1, *a)\n'
LATER = [  # a line, what the message names
    ("import tomllib", "tomllib needs Python 3.11"), ("from dataclasses import dataclass", "dataclasses needs Python 3.7"),
    ("from __future__ import annotations", "__future__.annotations needs"), ("if (a := 1): pass", "ssignment expressions"),
    ('A = f"{B=}"', "self documenting"), ("def f(a, /): pass", "ositional-only"), ('A = "ab".removeprefix("a")', "removeprefix"),
    ("import shlex; shlex.join([])", "join needs Python 3.8"), ("from shlex import join", "shlex.join needs Python 3.8"),
    ("run(capture_output=True)", "capture_output= needs"), ("run(text=True)", "text= needs"),
    ("path.unlink(missing_ok=True)", "missing_ok="), ("A = {} | b", "dict | dict"), ("def f(a: list[str]): pass", "list[...]"),
    ("def f() -> dict[str, int]: pass", "dict[...]"), ("a: int | None = 1", "in an annotation"),
    ("datetime.fromisoformat(a)", "fromisoformat"), ("p.parse_intermixed_args()", "parse_intermixed_args"),
    ("def f(a):\n    return *a, 1", "return *a"), ("match a:\n    case 1: pass", "match"), ("breakpoint()", "breakpoint"),
]
TEXTS = [
    'a = 1\n[b]\nc = "d" # e\n[b.f]\ng = [1, 2,\n # h\n 3,]\n', "a.b.c = true\na.b.d = false\n", "[[a]]\nb = 1\n[[a]]\n[a.c]\nd = 2\n",
    "a = {b = 1, c.d = 'x', e = {}}\n", 'a = """\nb\\\n   c "q" \\u00e9"""\n', "a = '''\n'b\\n'''\n", 'a = """b"""""\n', '"a b".\'c\' = 1\n',
    "a = [0x1F, 0o17, 0b11, 1_000, -7, +7, 0]\n", "a = [1.5, -2e3, 6.6E-3, 1e+2, 1_0.0_1, inf, -inf]\n", "", "# only\r\na = 1\r\n",
    "[a.b]\nc = 1\n[a]\nd = 2\n", 'a = "\\t\\n\\"\\\\\\U0001F600"\n', "1234 = 'x'\n-_ = 2\n", "a = [[1], ['b', {c = 1}]]", "[ a . b ]\nc = 1\n",
    'a = ""\nb = \'\'\n', "[a]\nb.c = 1\nb.d = 2\n",
]
MISTAKES = [
    "[run\n", "a\n", "a = \n", "a = 1 b = 2\n", "a = 1\na = 2\n", "[a]\n[a]\n", "a = [1\n", "a = 'b\n'\n", 'a = "\\q"\n', "a = 01\n",
    "a = 1.\n", "a = yes\n", "a = {b = 1,}\n", "a = {b = 1}\n[a.c]\n", "a = {}\na.b = 1\n", "a = 1\n[a.b]\n", "a = []\n[[a]]\n",
    "[[a]]\n[a]\n", "[a]\n[[a]]\n", "a.b = 1\n[a]\n", "= 1\n", "a..b = 1\n", "a = 1__0\n", 'a = "\x01"\n', "# \x7f\n", 'a = "\\ud800"\n',
    '"""a""" = 1\n', "a = [1 2]\n", "[a] b = 1\n", 'a = "', "a = 0x\n", "a = {b = 1\n}\n",
]


class Checks(unittest.TestCase):
    def found(self, module=GOOD, entry=ENTRY, init="A = 1\n"):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "tools/python/trireme_scripts").mkdir(parents=True)
            (root / "tools/python/trireme_scripts/__init__.py").write_text(init)
            (root / "tools/python/trireme_scripts/a.py").write_text(module)
            (root / "tools/a").write_text(entry)
            (root / "tools/other").write_text("import tomllib  # not installed\n")
            return list(check_python.violations(root))

    def test_python_3_6_is_accepted(self):
        self.assertEqual(self.found(), [])

    def test_each_later_form_is_found(self):
        for line, named in LATER:
            found = self.found(module=line + "\n")
            self.assertEqual(len(found), 1, (line, found))
            self.assertIn(named, found[0].replace("Pattern matching", "match"), line)

    def test_entries_are_readable_by_older_versions(self):
        self.assertIn("tools/a:3", self.found(entry=ENTRY + 'A = f"{b}"\n')[0])
        self.assertIn("__init__.py:1", self.found(init='A = f"{b}"\n')[0])
        self.assertTrue(self.found(entry="pass\n"), "no entry")

    def test_an_old_python_is_named_in_the_error(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            trireme_scripts.need_python((3, 5, 2))
        self.assertEqual(ended.exception.code, 2)
        self.assertIn("error: Python 3.5 is too old; start it with Python 3.6 or newer", said.getvalue())
        trireme_scripts.need_python((3, 6, 0))
        trireme_scripts.need_python()


class Toml(unittest.TestCase):
    def test_texts_are_read_as_by_tomllib(self):
        for text in TEXTS:
            with self.subTest(text=text):
                self.assertEqual(toml.loads(text), tomllib.loads(text))

    def test_decks_and_site_files_are_read_as_by_tomllib(self):
        paths = [*(ROOT / "inputs").rglob("*.toml"), *(ROOT / "tools/sites").glob("*.toml")]
        self.assertGreater(len(paths), 20)
        for path in paths:
            self.assertEqual(toml.loads(path.read_text()), tomllib.loads(path.read_text()), path)

    def test_mistakes_are_errors_with_their_place(self):
        for text in MISTAKES:
            with self.subTest(text=text):
                self.assertRaises(tomllib.TOMLDecodeError, tomllib.loads, text)
                self.assertRaisesRegex(toml.TomlError, r"\(at line \d+, column \d+\)$", toml.loads, text)
        self.assertRaisesRegex(toml.TomlError, "line 2, column 5", toml.loads, "a = 1\nb = yes\n")
        self.assertRaisesRegex(toml.TomlError, "a date is none", toml.loads, "a = 2026-01-01\n")
        self.assertRaises(toml.TomlError, toml.loads, "a = " + 1000 * "[")


if __name__ == "__main__":
    unittest.main()
