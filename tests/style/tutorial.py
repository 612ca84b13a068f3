#!/usr/bin/env python3
"""Runs a tutorial as its reader would, and holds what it shows to what its commands print.

    tutorial.py DOCUMENT --bin FOLDER [--mpiexec PROGRAM] [--update | --steps NUMBER]

An example is an indented block of a line `$ command`, continued after a backslash, and what the command prints. All commands run in order in one shell,
in a scratch folder that looks like a clone with FOLDER as build/host/bin. A command that ends in `# then press Ctrl-C` is
interrupted after it has printed a line that begins with `step`, and may end with 75. Every other exit code is 0, unless
the command prints it (`echo $?`). Shown and printed output are compared after MASKS. Prints what differs and ends
with 1; with --update it writes the true output into the document instead. With --steps, the decks of the document have this
number of steps instead of theirs, and lines about single steps are not compared.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import deck_commands  # noqa: E402

PROMPT = "    $ "
INTERRUPT = "# then press Ctrl-C"
# What differs between machines, builds and runs, or grows with the tree, and what stands for it in the comparison.
MASKS = [
    (r"^trireme: 2 ranks, .*", "trireme: 2 ranks, VERSIONS"),
    (r"^trireme \d+\.\d+\.\d+.*", "trireme VERSION"),
    (r"^(Kokkos|MPI|HDF5|oneDNN) \S.*\n", ""),
    (r"^trireme: stopping after step .*\n", ""),  # on standard error, which the launcher forwards on its own
    (r"^matrix-product peak .*", "matrix-product peak"),
    (r"(?s)^(/// Returns ).*", r"\1TEXT\n"),  # the sample that the trained model writes
    (r"\bbpe-[0-9a-f]{32}\b", "BPE"),
    (r"[\d.,]*\d (?:B|KiB|MiB|bytes)\b", "SIZE"),
    (r"[\d.]+ s\b(?:, [\d.]+ MB/s)?", "SECONDS"),
    (r"^trireme: warning: \S+ [\d.]+ % of the tokens of (?:its samples|sources).*\n", ""),
    (r"[\d,]+ (tokens/s|tokens in|tokens count|tokens[:,]|samples of \d+|documents|files in|logged steps)", r"N \1"),
    (r"in [\d,]+ samples, [\d.]+ % padding", "in N samples, N % padding"),
    (r"[\d.]+[kMGT]? tok/s(?: \d+% MFU)?", "N tok/s"),  # a wide line has no MFU
    (r"\b(loss|norm|epoch|MFU) +[\d.,e+-]*\d[kMGT]?", r"\1 N"),
    (r"\beta \S+", "eta N"),
    (r"^step +\d+(?=/)", "step N"),
    (r"(?<=after step STOP, )[\d,]+ samples", "N samples"),
    (r"[\d.]+ bits per byte", "N bits per byte"),
    (r"^\d+ of (\d+ words are divided)", r"N of \1"),
    (r"(?<= )[\d.]+%", "N%"),  # shares of right names
    (r"[\d.]+ % padding", "N % padding"),
    (r"^(\S+\.jsonl +acc\w*) .*", r"\1 N"),
    (r"^time +about [\d:]+", "time about TIME"),
    (r"[ \t]+", " "),
    (r"^(.*\n)\1+", r"\1"),  # the number of lines with the same words
    (r"^(found .*\n)step N/\d+ .*\n", r"\1"),  # the last step may have been logged before the request was found
    (r"^(.*\n)\1+", r"\1"),
]
# These make the folder build/host, which the test is given; tools/run runs the same ones.
GIVEN = ("./tools/setup", "cmake --preset host", "cmake --build --preset host")


# A request to stop ends a run after any step, whose number stands in the following commands' output, too.
STOPPED = re.compile(r"^stopped early after step (\d+) of", re.MULTILINE)


class Masks:
    """What the output of the commands so far says, for the comparison: of those shown, or of those printed."""

    def __init__(self):
        self.stop = None

    def __call__(self, text):
        if found := STOPPED.search(text):
            self.stop = int(found[1])
        if self.stop is not None:
            text = re.sub(rf"\b(step_|step )0*{self.stop}\b(?!/)", r"\1STOP", text)
        return masked(text)


def masked(text):
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def is_output(line):
    return line.startswith("    ") and not line.startswith(PROMPT)


def parse(lines):
    """[(text lines before, command or None, shown lines)]: joined again they are the document."""
    parts, text, at = [], [], 0
    while at < len(lines):
        if not lines[at].startswith(PROMPT):
            text.append(lines[at])
            at += 1
            continue
        command, at, shown = lines[at], at + 1, []
        while command.endswith("\\") and at < len(lines):
            command, at = command + "\n" + lines[at], at + 1
        # An empty line belongs to the output when more of it follows.
        while at < len(lines) and is_output(lines[at] or "".join(lines[at + 1:at + 2])):
            shown.append(lines[at])
            at += 1
        parts.append((text, command, shown))
        text = []
    return parts + [(text, None, [])]


class Shell:
    """A reader's terminal."""

    def __init__(self, folder, environment):
        self.end = f"== end {os.getpid()} "
        self.bash = subprocess.Popen(["bash"], cwd=folder, env=environment, text=True, bufsize=1, errors="replace",
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def interrupt(self):
        """SIGINT to the program that the shell has started."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended meanwhile
                continue
            if parent == self.bash.pid:
                os.kill(int(process.name), signal.SIGINT)

    def run(self, command):
        """What the command prints, and its exit code."""
        self.bash.stdin.write("{ " + command + "\n} </dev/null\n" + f'printf "\\n{self.end}%d\\n" $?\n')
        self.bash.stdin.flush()
        interrupts = command.endswith(INTERRUPT)
        printed = ""
        for line in self.bash.stdout:
            if line.startswith(self.end):
                return printed[:-1], int(line[len(self.end):])  # without printf's line feed
            if not line.startswith("[mpiexec@"):  # MPICH's launcher, on Ctrl-C
                printed += line
            if interrupts and line.startswith("step "):
                self.interrupt()
                interrupts = False
        raise SystemExit(f"{command}: the shell ended after\n{printed}")


def shorten(folder, commands, steps):
    """Sets the number of steps of the decks that the commands name, also of a longer warm-up. Returns the former numbers."""
    inputs, former = folder / "inputs", set()
    source = inputs.resolve()  # scratch_copy() makes links
    inputs.unlink()
    shutil.copytree(source, inputs)
    for name in set(re.findall(r"\binputs/\w+\.toml\b", "\n".join(commands))):
        deck = folder / name
        content = deck.read_text(encoding="utf-8")
        longer = [n for n in re.findall(r"^(?:warmup_)?steps = (\d+)$", content, re.MULTILINE) if int(n) > steps]
        former.update(longer)
        for number in longer:
            content = re.sub(rf"steps = {number}$", f"steps = {steps}", content, flags=re.MULTILINE)
        deck.write_text(content, encoding="utf-8")
    if not former:
        raise SystemExit("--steps: the commands name no deck with a line `steps = NUMBER`")
    return former


def without_steps(text, numbers):
    """The text without lines about single steps, and with NUMBER instead of any of the numbers."""
    text = re.sub(r"^step .*\n", "", text, flags=re.MULTILINE)
    return re.sub(rf"\b0*(?:{'|'.join(map(str, numbers))})\b|(?<=step_)0*(?:{'|'.join(map(str, numbers))})\b", "NUMBER", text)


def scratch_clone(root, scratch, bin_folder, mpiexec):
    """Prepares the folder, and returns the environment in which `mpiexec` is the one that the build found."""
    deck_commands.scratch_copy(root, scratch)
    (scratch / "build/host").mkdir(parents=True)
    (scratch / "build/host/bin").symlink_to(Path(bin_folder).resolve())
    launcher = scratch / "build/launcher/mpiexec"
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/sh\nexec "{shutil.which(mpiexec)}" "$@"\n')
    launcher.chmod(0o755)
    return dict(os.environ, PATH=f"{launcher.parent}{os.pathsep}{os.environ['PATH']}", LC_ALL="C")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document")
    parser.add_argument("--bin", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument("--update", action="store_true")
    changes.add_argument("--steps", type=int)
    options = parser.parse_args()
    document = Path(options.document).resolve()
    parts = parse(document.read_text(encoding="utf-8").splitlines())
    commands = [command[len(PROMPT):] if command else "" for _, command, _ in parts]

    out, mistakes, ran = [], 0, 0
    of_shown, of_printed = Masks(), Masks()
    with tempfile.TemporaryDirectory(prefix="trireme-tutorial-") as folder:
        shell = Shell(folder, scratch_clone(document.parent.parent, Path(folder), options.bin, options.mpiexec))
        compared = str
        if options.steps:
            numbers = shorten(Path(folder), commands, options.steps) | {options.steps}
            compared = lambda text: without_steps(text, numbers)  # noqa: E731
        for (text, prompt, shown), command in zip(parts, commands):
            out += text
            if prompt is None:
                break
            out.append(prompt)
            if command.startswith(GIVEN):
                out += shown
                continue
            ran += 1
            printed, code = shell.run(command)
            true = ["    " + line if line else "" for line in printed.splitlines()]
            same = of_printed(compared(printed)) == of_shown(compared("".join(line[4:] + "\n" for line in shown)))
            out += true if options.update else shown
            if not same:
                mistakes += not options.update
                print("\n".join([prompt, "  is shown as", *shown, "  but prints", *true]))
            if code != 0 and not (code == 75 and command.endswith(INTERRUPT)):
                mistakes += 1
                print(f"{prompt}\n  ends with exit code {code}")
        shell.bash.stdin.close()
        shell.bash.wait()
    if ran == 0:
        mistakes += 1
        print(f"{document}: no example found")
    if options.update:
        document.write_text("\n".join(out) + "\n", encoding="utf-8")
    elif mistakes:
        print(f"\nTo show the true output: {Path(__file__).name} {options.document} --bin {options.bin} --update")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
