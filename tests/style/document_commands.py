#!/usr/bin/env python3
"""Holds the examples of a document to what the program says.

    document_commands.py DOCUMENT --bin FOLDER [--update]

An example is an indented block whose first line is `$ trireme ...` and whose other lines are what it prints; a line `…`
stands for any lines. The commands run in the repository, with the programs of FOLDER first on PATH. Prints what differs and ends with 1; with --update the
document gets the true output instead, and the files that commands write (`-o docs/pictures/...`) are written.
"""
import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

INDENT = "    "
PROMPT = INDENT + "$ trireme "
ELISION = INDENT + "…"


def shows(shown, true):
    """Whether the shown lines are the true ones, except for those that elisions stand for."""
    pieces, at = [[]], 0
    for line in shown:
        if line == ELISION:
            pieces.append([])
        else:
            pieces[-1].append(line)
    for number, piece in enumerate(pieces):
        last = len(true) - len(piece)
        starts = range(at, last + 1)
        if number == len(pieces) - 1:
            starts = range(max(at, last), last + 1)
        if number == 0:
            starts = starts[:1]
        start = next((start for start in starts if true[start:start + len(piece)] == piece), None)
        if start is None:
            return False
        at = start + len(piece)
    return len(pieces) > 1 or len(shown) == len(true)


def output_of(command, root, environment, written):
    """What the command prints, and into `written` what it would write: {path in the repository: bytes}."""
    words = shlex.split(command)
    with tempfile.TemporaryDirectory(prefix="trireme-document-") as scratch:
        target = None
        if "-o" in words:
            target = words[words.index("-o") + 1]
            words[words.index("-o") + 1] = str(Path(scratch) / Path(target).name)
        run = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True)
        if target is not None:
            result = Path(scratch) / Path(target).name
            written[target] = result.read_bytes() if result.exists() else b""
        return (run.stdout + run.stderr).replace(scratch, str(Path(target).parent) if target else scratch)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document")
    parser.add_argument("--bin", required=True)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    document = Path(options.document).resolve()
    root = Path(__file__).resolve().parents[2]
    environment = dict(os.environ, PATH=os.path.abspath(options.bin) + os.pathsep + os.environ["PATH"])

    lines = document.read_text(encoding="utf-8").splitlines()
    out, examples, differences, written, at = [], 0, 0, {}, 0
    while at < len(lines):
        line = lines[at]
        out.append(line)
        at += 1
        if not line.startswith(PROMPT):
            continue
        examples += 1
        shown = []
        while at < len(lines) and not lines[at].startswith(PROMPT) and (
                lines[at].startswith(INDENT) or (not lines[at] and lines[at + 1:at + 2][:1] and
                                                 lines[at + 1].startswith(INDENT) and
                                                 not lines[at + 1].startswith(PROMPT))):
            shown.append(lines[at])
            at += 1
        said = output_of(line[len(INDENT) + 2:], root, environment, written).splitlines()
        true = [(INDENT + said_line) if said_line else "" for said_line in said]
        correct = shows(shown, true)
        out += shown if correct else true
        if not correct:
            differences += 1
            print(f"{line.strip()}\n  is shown as\n" + "\n".join(shown) + "\n  but prints\n" + "\n".join(true))
    for target, content in written.items():
        path = root / target
        if options.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        elif not path.exists():
            differences += 1
            print(f"{target}: the document's command writes it, but it is not there")
    if examples == 0:
        print(f"{document}: no example found", file=sys.stderr)
        return 1
    if options.update:
        document.write_text("\n".join(out) + "\n", encoding="utf-8")
        return 0
    if differences > 0:
        print(f"\nIf that is right: {Path(__file__).name} {options.document} --bin {options.bin} --update")
    return 1 if differences > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
