#!/usr/bin/env python3
"""tools/run starts only what its help says: commands of trireme, without a shell.

    test_run.py
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "tools/run"
DECKS = sorted(ROOT.glob("inputs/*.toml")) + sorted(ROOT.glob("inputs/paper/*.toml"))


class Headers(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix=".trireme-run-", dir=ROOT)  # decks are named from the root
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def listed(self, *lines, name="deck.toml", text=None):
        """What --list says of a deck whose header has these commands besides the one that trains."""
        deck = self.folder / name
        train = f"trireme train {deck.relative_to(ROOT)}"
        deck.write_bytes((text or "".join(f"#   {line}\n" for line in (*lines, train)) + "\n[run]\n").encode())
        said = subprocess.run([str(RUN), "--list", str(deck)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return said

    def refused(self, *lines, **options):
        said = self.listed(*lines, **options)
        self.assertEqual(said.returncode, 2, said.stdout + said.stderr)
        self.assertEqual(said.stdout, "")
        self.assertRegex(said.stderr, r"^tools/run: error: .*\n$")
        return said.stderr

    def test_every_deck_of_the_repository_is_parsed(self):
        for deck in DECKS:
            said = subprocess.run([str(RUN), "--list", str(deck)], capture_output=True, text=True)
            header = [line[4:].strip() for line in deck.read_text().split("\n") if line.startswith("#   ")
                      and "trireme" in line]
            own = any(f"train {deck.resolve().relative_to(ROOT)}" in line for line in header)
            self.assertEqual(said.returncode, 0 if own else 2, said.stderr)
            self.assertEqual(len(said.stdout.splitlines()), len(header) if own else 0)

    def test_quotes_follow_the_shell(self):
        said = self.listed(r"trireme tokenize a.txt --document-separator '\n\n(?=\S)' -o x.h5",
                           'mpiexec -n 2 trireme generate d --prompt "Two words"')
        self.assertEqual(said.stdout.splitlines()[:2],
                         [r"trireme tokenize a.txt --document-separator '\n\n(?=\S)' -o x.h5",
                          "mpiexec -n 2 trireme generate d --prompt 'Two words'"])

    def test_no_other_program_starts(self):
        for line in ("rm -r trireme", "env trireme train x", "sh -c 'trireme train x'", "./trireme train x",
                     "/opt/trireme train x", "mpiexec -n 2 sh -c trireme", "mpiexec -n 2 env trireme train x",
                     "mpiexec -launcher-exec ./x -n 2 trireme train x", "mpiexec trireme train x",
                     "mpiexec -n 2 trireme train x : -n 1 touch y", "mpiexec -n $(id) trireme train x", "trireme",
                     "trireme ../../bin/sh x", "trireme --version", "PATH=. trireme train x"):
            self.refused(line)

    def test_lines_are_not_passed_to_a_shell(self):
        trap = self.folder / "trap"
        for attempt in (f"; touch {trap}", f"&& touch {trap}", f"| tee {trap}", f"> {trap}", f"$(touch {trap})",
                        f"`touch {trap}`", f'"$(touch {trap})"', f'"`touch {trap}`"', f"& touch {trap}", "*", "~/x",
                        "$HOME", '"$HOME"', "{a,b}", "<(id)", "'open", f"\\; touch {trap}"):
            self.refused(f"trireme eval x {attempt}")
            self.assertFalse(trap.exists())

    def test_control_characters_are_rejected(self):
        for character in "\x00\x07\x1b\r\x0b":
            self.assertIn("control character", self.refused(f"trireme eval x{character}y"))

    def test_only_the_header_counts(self):
        deck = self.folder / "deck.toml"
        text = f"#   trireme train {deck.relative_to(ROOT)}\n\n#   rm -r trireme\n[run]\n"
        self.assertEqual(len(self.listed(text=text).stdout.splitlines()), 1)
        self.assertIn("has no line such as", self.refused(text="#   trireme eval other.toml\n"))

    def test_help_is_printed_and_a_missing_deck_is_an_error(self):
        said = subprocess.run([str(RUN), "none.toml"], capture_output=True, text=True)
        self.assertEqual((said.returncode, said.stderr), (2, "tools/run: error: none.toml: no such deck\n"))
        said = subprocess.run([str(RUN), "--help"], capture_output=True, text=True)
        self.assertIn("without a shell", said.stdout)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, verbosity=1).result.wasSuccessful() else 1)
