#!/usr/bin/env python3
"""What a run shows on a terminal: progress lines that replace one another, also of several ranks; colours; and Ctrl-C.

    test_terminal.py --bin BUILD/bin --mpiexec mpiexec
"""
import argparse
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

arguments = None
DECK = """[run]
directory = "run"
steps = {steps}
log_every = 1
[model]
layers = 1
hidden = 16
heads = 2
sequence = 32
[batch]
global = 4
micro = 1
[optimizer]
learning_rate = 1e-2
[data]
train = "tokens.h5"
"""
ERASE = "\r\033[K"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, folder, command, **variables):
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TRIREME_PROGRESS", "COLUMNS")}
        environment |= {"TERM": "xterm", "PATH": f"{arguments.bin}:{os.environ['PATH']}"} | variables
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("sh", ["sh", "-c", command], environment)
        self.shown = ""

    def read_until(self, words="", seconds=60):
        """What is shown until `words`, or until the end."""
        end = time.monotonic() + seconds
        while not (words and words in self.shown) and time.monotonic() < end:
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                part = os.read(self.master, 65536)
            except OSError:  # the terminal's last process has ended
                break
            if not part:
                break
            self.shown += part.decode(errors="replace")
        return self.shown

    def press_ctrl_c(self):
        os.write(self.master, b"\x03")

    def end(self):
        """The exit code of the command."""
        self.read_until()
        os.close(self.master)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class OnATerminal(unittest.TestCase):
    def setUp(self):
        self.kept = tempfile.TemporaryDirectory(prefix="trireme-terminal-")
        self.addCleanup(self.kept.cleanup)
        self.folder = Path(self.kept.name)
        (self.folder / "text").write_text("".join(f"the quick brown fox {i * i % 97}\n" for i in range(2000)))
        subprocess.run([f"{arguments.bin}/trireme", "tokenize", "-o", "tokens.h5", "--document-separator", "\\n", "text"],
                       cwd=self.folder, check=True, capture_output=True)
        self.write_deck(4)

    def write_deck(self, steps):
        (self.folder / "deck.toml").write_text(DECK.format(steps=steps))

    def on_ranks(self, ranks):
        return f"{arguments.mpiexec} -n {ranks} trireme train deck.toml" if ranks > 1 else "trireme train deck.toml"

    def run_on_terminal(self, command, **variables):
        terminal = Terminal(self.folder, command, **variables)
        code = terminal.end()
        return code, terminal.shown

    def test_progress_lines_replace_one_another(self):
        for ranks in (1, 2):
            code, shown = self.run_on_terminal(self.on_ranks(ranks))
            self.assertEqual(code, 0, shown)
            for step in range(1, 5):
                self.assertIn(f"{ERASE}step {step}/4 epoch ", shown)
            self.assertNotIn("MFU  eta 0:00\r\n", shown)

    def test_progress_lines_stay_in_files_and_on_request(self):
        for ranks in (1, 2):
            for ending, variables in ((" > out", {}), (" | cat", {}), ("", {"TRIREME_PROGRESS": "lines"}),
                                      ("", {"TERM": "dumb"})):
                if ranks == 2 and ending == "" and variables.get("TERM"):
                    continue
                code, shown = self.run_on_terminal(self.on_ranks(ranks) + ending, **variables)
                shown += (self.folder / "out").read_text() if ending == " > out" else ""
                self.assertEqual(code, 0, shown)
                self.assertIn("step 4/4 epoch ", shown)
                self.assertNotIn("\033", shown, (ranks, ending, variables))

    def test_errors_have_colours_only_on_a_terminal_with_colours(self):
        command = "trireme check nothing.toml"
        self.assertIn("\033[1;31mtrireme: error: \033[0mnothing.toml", self.run_on_terminal(command)[1])
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn("\033", self.run_on_terminal(command, **variables)[1])
        self.assertNotIn("\033", self.run_on_terminal(command + " 2>&1 | cat")[1])

    def test_ctrl_c_stops_the_run_and_a_second_aborts(self):
        self.write_deck(10_000_000)
        for ranks in (1, 2):
            terminal = Terminal(self.folder, "exec " + self.on_ranks(ranks))
            terminal.read_until("step        3/")
            terminal.press_ctrl_c()
            code = terminal.end()
            self.assertEqual(terminal.shown.count("trireme: stopping after step "), 1, terminal.shown)
            self.assertIn("press Ctrl-C again to abort", terminal.shown)
            self.assertIn("stopped early after step ", terminal.shown)
            if ranks == 1:  # mpiexec may return 0 after it has forwarded a signal
                self.assertEqual(code, 75, terminal.shown)
            self.assertTrue(list((self.folder / "run/checkpoints").glob("step_*/manifest.json")))

    def test_a_second_ctrl_c_ends_the_run_without_a_checkpoint(self):
        self.write_deck(10_000_000)
        # Its first step lasts for longer than the test.
        terminal = Terminal(self.folder, "exec trireme train deck.toml batch.global=60000")
        terminal.read_until("matrix-product peak")
        time.sleep(1)  # the step has begun
        terminal.press_ctrl_c()
        terminal.read_until("again to abort at once")
        time.sleep(1.2)
        begin = time.monotonic()
        terminal.press_ctrl_c()
        self.assertEqual(terminal.end(), -signal.SIGINT, terminal.shown)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertNotIn("stopped early", terminal.shown)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
