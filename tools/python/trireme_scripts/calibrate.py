"""Fits values of a machine file to measured training steps.

    PROGRAM STEPS MACHINE [STEPS MACHINE ...] [--keys KEY,...] [--bin FOLDER] [-o FOLDER] [section.key=value ...]

STEPS is a CSV file as `trireme predict` reads it, MACHINE the machine file of these steps. All pairs are fitted together:
a key has one value in all files that set it. Minimizes the mean of |log(predicted / measured)|, to which a few bad
measurements contribute little, by the simplex method of Nelder and Mead (1965). Every value stays between bounds that are
physically possible. Writes the changed files to FOLDER and leaves the given ones alone. Overrides such as
precision.compute=fp16 hold for all steps.
"""
import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from . import program, toml
from .arguments import parse_intermixed

# Bounds of the keys that can be fitted.
BOUNDS = {
    "device.product_efficiency": (0.5, 0.95),     # large products of cuBLAS and oneDNN reach 0.6 to 0.9
    "device.memory_efficiency": (0.6, 0.95),      # copies reach 0.9
    "device.attention_efficiency": (0.2, 0.75),   # FlashAttention-2 and -3: 0.35 to 0.75
    "device.tile_overhead": (16, 512),            # a few steps of a tile's inner loop
    "device.launch": (1e-6, 1e-5),
    "node.link_efficiency": (0.4, 0.95),
    "node.link_latency": (1e-6, 5e-5),
    "network.efficiency": (0.4, 0.95),
    "network.gradient_efficiency": (0.2, 0.95),
    "network.latency": (2e-6, 1e-4),
    "software.host_per_layer": (1e-5, 1e-2),
    "software.traffic_ratio": (1, 2.5),
    "software.logit_traffic": (10, 120),          # 5 to 20 passes over 2 to 6 bytes
    "software.optimizer_bytes": (20, 100),
    "software.tensor_overlap": (0, 0.95),
    "software.gradient_overlap": (0, 0.95),
    "software.pipeline_overlap": (0, 1),
    "software.activation_ratio": (0.8, 2),
}
USUAL_KEYS = ["device.product_efficiency", "device.memory_efficiency", "device.attention_efficiency",
              "node.link_efficiency", "network.efficiency", "network.gradient_efficiency"]


def section_and_name(key):
    return key.split(".", 1)


def place(text, key):
    """Begin and end of the key's value in the text of a machine file, or None."""
    section, name = section_and_name(key)
    table = re.search(rf"^[ \t]*\[{section}\][^\n]*\n(.*?)(?=^[ \t]*\[|\Z)", text, re.M | re.S)
    line = table and re.search(rf"^[ \t]*{name}[ \t]*=[ \t]*([^\s#]+)", table[1], re.M)
    return (table.start(1) + line.start(1), table.start(1) + line.end(1)) if line else None


def with_value(text, key, value):
    """The text of a machine file with another value of a key that it sets."""
    begin, end = place(text, key)
    return text[:begin] + f"{value:.4g}" + text[end:]


def current(text, key):
    """The value of a key that the machine file sets, or None."""
    found = place(text, key)
    return float(text[found[0]:found[1]].replace("_", "")) if found else None


def read_machine(path):
    text = Path(path).read_text(encoding="utf-8")
    try:
        toml.loads(text)
    except toml.TomlError as error:
        sys.exit(f"{program()}: {path}: {error}")
    return text


class Fit:
    """The mean deviation of all steps as a function of the keys, each mapped from its bounds to all numbers."""

    def __init__(self, options):
        self.program = str(Path(options.bin) / "trireme") if options.bin else "trireme"
        self.overrides = options.overrides
        self.pairs = [(steps, machine, read_machine(machine)) for steps, machine in options.pairs]
        self.keys = []
        for key in options.keys:
            if any(current(text, key) is not None for _, _, text in self.pairs):
                self.keys.append(key)
            else:
                sys.exit(f"{program()}: no machine file sets {key}; write it with an estimated value first")
        self.calls = 0

    def start(self):
        point = []
        for key in self.keys:
            low, high = BOUNDS[key]
            value = next(filter(None.__ne__, (current(text, key) for _, _, text in self.pairs)))
            share = min(max((value - low) / (high - low), 0.02), 0.98)
            point.append(math.log(share / (1 - share)))
        return point

    def values(self, point):
        out = {}
        for key, x in zip(self.keys, point):
            low, high = BOUNDS[key]
            out[key] = low + (high - low) / (1 + math.exp(-max(min(x, 30), -30)))
        return out

    def texts(self, point):
        for steps, machine, text in self.pairs:
            for key, value in self.values(point).items():
                if current(text, key) is not None:
                    text = with_value(text, key, value)
            yield steps, machine, text

    def deviations(self, point, exact=False):
        """|log(predicted / measured)| of each step, pair by pair."""
        self.calls += 1
        out = []
        with tempfile.TemporaryDirectory() as folder:
            for steps, _, text in self.texts(point):
                path = Path(folder) / "machine.toml"
                path.write_text(text)
                command = [self.program, "predict", steps, "--machine", str(path), "--json", *self.overrides]
                try:
                    run = subprocess.run(command if exact else command + ["--estimate"], stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE)
                except OSError as error:
                    sys.exit(f"{program()}: cannot run {self.program}: {error.strerror}; name its folder with --bin")
                if run.returncode != 0:
                    sys.exit(f"{program()}: {' '.join(command)}\n{run.stderr.decode('utf-8', 'replace').rstrip()}")
                out.append([abs(math.log(r["predicted_seconds"] / r["measured_seconds"])) for r in json.loads(run.stdout.decode("utf-8"))])
        return out

    def loss(self, point):
        """Every pair counts the same, however many steps it has."""
        pairs = self.deviations(point)
        return sum(sum(d) / len(d) for d in pairs) / len(pairs)


def minimize(f, start, steps):
    """Nelder and Mead's simplex method. Returns the best point."""
    simplex = [(f(start), start)]
    for i in range(len(start)):
        moved = list(start)
        moved[i] += 0.7
        simplex.append((f(moved), moved))
    while steps > 0:
        simplex.sort(key=lambda s: s[0])
        center = [sum(p[i] for _, p in simplex[:-1]) / (len(simplex) - 1) for i in range(len(start))]
        worst = simplex[-1]

        def along(t):
            point = [c + t * (w - c) for c, w in zip(center, worst[1])]
            return f(point), point

        steps -= 1
        new = along(-1)
        if new[0] < simplex[0][0]:
            new = min(new, along(-2), key=lambda s: s[0])
        elif new[0] >= simplex[-2][0]:
            new = min(along(0.5), along(-0.5), key=lambda s: s[0])
        if new[0] < worst[0]:
            simplex[-1] = new
            continue
        best = simplex[0][1]
        simplex = [simplex[0]] + [(f(q), q) for _, p in simplex[1:] for q in [[(a + b) / 2 for a, b in zip(p, best)]]]
    return min(simplex, key=lambda s: s[0])[1]


def parsers():
    """The parser of the options alone, and the parser of all arguments."""
    given = argparse.ArgumentParser(add_help=False)
    given.add_argument("--keys", default=",".join(USUAL_KEYS), help="keys to fit, separated by commas; default: %(default)s")
    given.add_argument("--bin", help="folder of the program trireme; default: as found by PATH")
    given.add_argument("--steps", type=int, default=150, help="steps of the fit; default: %(default)s")
    given.add_argument("-o", "--output", help="folder for the changed machine files; default: print the values only")
    parser = argparse.ArgumentParser(prog=program(), description=__doc__.replace("PROGRAM", program()), parents=[given],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arguments", nargs="+", metavar="STEPS MACHINE", help="pairs of files, then overrides section.key=value")
    return given, parser


def main():
    given, parser = parsers()
    options = parse_intermixed(given, parser, sys.argv[1:])
    files = [a for a in options.arguments if "=" not in a]
    options.overrides = [a for a in options.arguments if "=" in a]
    if len(files) % 2 != 0:
        parser.error("each file of steps needs its machine file after it")
    options.pairs = list(zip(files[::2], files[1::2]))
    options.keys = options.keys.split(",")
    for key in options.keys:
        if key not in BOUNDS:
            parser.error(f"{key} cannot be fitted; choose of {', '.join(BOUNDS)}")
    for path in files:
        if not Path(path).is_file():
            parser.error(f"{path}: no such file")
    fit = Fit(options)
    start = fit.start()
    best = minimize(fit.loss, start, options.steps)
    for name, point in (("before", start), ("after", best)):
        for (steps, machine, _), d in zip(fit.pairs, fit.deviations(point, exact=True)):
            d = sorted(d)
            print(f"{name:7}{steps}: mean deviation {100 * sum(d) / len(d):.2f} %, median {100 * d[len(d) // 2]:.2f} %")
    for key, value in fit.values(best).items():
        low, high = BOUNDS[key]
        print(f"{key} = {value:.4g}    (from {low:g} to {high:g})")
    if options.output:
        folder = Path(options.output)
        folder.mkdir(parents=True, exist_ok=True)
        for _, machine, text in fit.texts(best):
            (folder / Path(machine).name).write_text(text)
