#!/usr/bin/env python3
"""Runs a command that the leading comment of a deck names.

    deck_commands.py DECK COMMAND --bin FOLDER [--mpiexec PROGRAM]

The command runs in a scratch folder that looks like the repository (links to its files), with the programs of FOLDER
first on PATH. For `train` the header's tokenize lines and tools/ lines that stand before it run first, and the run
directory is one in the scratch folder. For other commands only lines that train the deck's tokenizer run first, and the
tools/ lines before those.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LINE = re.compile(r"^#\s+((?:mpiexec\s+-n\s+\d+\s+)?trireme\s+(\w+)\b.*|(tools/\w+)\b.*)$")
NOT_LINKED = {"build", "data", "runs", "run", ".git"}


def commands(deck):
    """The commands of the leading comment in their order: [(subcommand or tool, whole line)]."""
    out, continued = [], ""
    for line in Path(deck).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if continued:
            line = continued + " " + line.lstrip("# ")
        continued = line[:-1].rstrip() if line.endswith("\\") else ""
        match = LINE.match(line)
        if match and not continued:
            out.append((match.group(2) or match.group(3), match.group(1).strip()))
    return out


def repository_of(deck):
    """The folder that holds the deck's inputs/."""
    return next(folder.parent for folder in deck.parents if folder.name == "inputs")


def scratch_copy(root, scratch):
    for entry in root.iterdir():
        if entry.name not in NOT_LINKED:
            (scratch / entry.name).symlink_to(entry)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deck")
    parser.add_argument("command")
    parser.add_argument("--bin", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    options = parser.parse_args()
    deck = Path(options.deck).resolve()
    found = commands(deck)
    wanted = [i for i, (command, _) in enumerate(found) if command == options.command]
    if not wanted:
        print(f"{deck}: its leading comment has no `trireme {options.command}` line", file=sys.stderr)
        return 1
    before = found[:wanted[0]]
    trained = [i for i, (_, line) in enumerate(before) if "--train-bpe" in line]
    if options.command != "train":
        before = [part for i, part in enumerate(before)
                  if i in trained or part[0].startswith("tools/") and i < max(trained, default=0)]
    lines = [line for command, line in before if command == "tokenize" or command.startswith("tools/")]
    lines += [found[i][1] for i in wanted]

    environment = dict(os.environ, PATH=os.path.abspath(options.bin) + os.pathsep + os.environ["PATH"])
    mpiexec = shutil.which(options.mpiexec) or options.mpiexec
    with tempfile.TemporaryDirectory(prefix="trireme-deck-") as scratch:
        scratch_copy(repository_of(deck), Path(scratch))
        for line in lines:
            if re.search(r"trireme\s+train\b", line):
                line += f" run.directory={scratch}/run"
            line = re.sub(r"^mpiexec\b", mpiexec, line)
            print("$", line, flush=True)
            code = subprocess.run(line, shell=True, cwd=scratch, env=environment).returncode
            if code != 0:
                print(f"exit code {code}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
