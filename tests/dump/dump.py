#!/usr/bin/env python3
"""What the planner says of every deck in inputs/ in many layouts: registry, memory, messages, time, programs and layers.

    dump.py --bin build/host/bin -o FOLDER [--only NAME]      one file per deck
    dump.py --bin build/host/bin --against FOLDER             compares; 1 if anything differs

Written before a change that must not change numbers, and compared after it. A layout that a deck does not allow gives the
error's text. Programs are given by their digest and length.
"""
import argparse
import hashlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["batch.global=192", "batch.micro=1"]
LAYOUTS = [
    (1, []),
    (2, ["parallel.tensor=2", "parallel.sequence_parallel=true"]),
    (2, ["parallel.context=2"]),
    (4, ["parallel.shard=optimizer", *SMALL]),
    (4, ["parallel.shard=weights", *SMALL]),
    (4, ["parallel.pipeline=2", "parallel.chunks=2", "parallel.schedule=interleaved", "parallel.recompute=selective", *SMALL]),
    (8, ["parallel.tensor=2", "parallel.pipeline=2", "parallel.schedule=zb-h1", "parallel.recompute=full", *SMALL]),
    (8, ["parallel.pipeline=4", "parallel.schedule=zb-v", *SMALL]),
    (8, ["parallel.pipeline=4", "parallel.schedule=2bw", *SMALL]),
    (4, ["parallel.pipeline=2", "parallel.vocabulary=pipeline", *SMALL]),
    (4, ["parallel.strategy=server", "parallel.servers=1", *SMALL]),
    (4, ["local.workers=4", *SMALL]),
    (16, ["parallel.tensor=2", "parallel.pipeline=2", "parallel.offload=activations", *SMALL]),
    (64, ["parallel.layout=auto", "batch.global=192"]),
    (4, ["optimizer.kind=muon", "parallel.shard=optimizer", *SMALL]),
    (2, ["precision.compute=bf16", "precision.products=fp8"]),
]
MACHINES = ["h100.toml", "host.toml"]


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, errors="replace")
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}"


def sections(program, deck):
    """(title, text) of everything that is known of a deck."""
    machines = [path for name in MACHINES if (path := ROOT / "inputs/machines" / name).exists()]
    yield "resolved", run(program, "check", deck, "--resolved")
    for ranks, overrides in LAYOUTS:
        arguments = ["--ranks", ranks, deck, *overrides]
        title = f"{ranks} ranks {' '.join(overrides)}"
        text = run(program, "check", *arguments)
        yield f"check, {title}", text
        if not text.startswith("exit 0"):
            continue
        yield f"layer, {title}", run(program, "check", "--layer", *arguments)
        yield f"json, {title}", run(program, "check", "--json", "-", *arguments)
        for machine in machines:
            yield f"{machine.stem}, {title}", run(program, "check", "--machine", machine, *arguments)
        drawn = run(program, "draw", "--format", "program", *arguments)
        yield f"program, {title}", f"{hashlib.sha256(drawn.encode()).hexdigest()} {drawn.count(chr(10))} lines\n"


def dump(program, deck):
    return "".join(f"==== {title}\n{text.rstrip()}\n" for title, text in sections(program, deck))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    program = options.bin.resolve() / "trireme"
    decks = [path.relative_to(ROOT) for path in sorted(ROOT.glob("inputs/**/*.toml"))
             if path.parent.name != "machines" and options.only in str(path)]
    with ThreadPoolExecutor(options.jobs) as pool:
        dumps = list(pool.map(lambda deck: dump(program, deck), decks))
    dumps.append("".join(run(program, "help", topic, "--markdown") for topic in ("deck", "machine")))
    names = [str(deck).replace("/", "_").replace(".toml", ".txt") for deck in decks] + ["registry.txt"]
    folder = options.output or Path(tempfile.mkdtemp(prefix="trireme-dump-"))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(names, dumps):
        (folder / name).write_text(text)
    if not options.against:
        print(f"{folder}: {len(names)} files, {sum(map(len, dumps)):,} characters")
        return 0
    differing = [name for name, text in zip(names, dumps)
                 if not (options.against / name).exists() or (options.against / name).read_text() != text]
    for name in differing:
        subprocess.run(["diff", "--unified=1", options.against / name, folder / name])
    print(f"{len(names) - len(differing)} of {len(names)} files are equal")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
