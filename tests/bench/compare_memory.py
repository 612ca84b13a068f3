#!/usr/bin/env python3
"""Peak memory as `trireme check` predicts it, against what a rank of `trireme train` really had resident.

    compare_memory.py --bin FOLDER [--mpiexec mpiexec] [--few] [--bound 0.05]

Trains a few steps of each of the decks below in a temporary folder. The prediction is the `peak` line of `trireme check`,
with what of it is the process itself (program, libraries, MPI) and no array. The measure is the high-water mark of the
resident set of the rank that had most, as the operating system counts it (Linux: VmHWM), which `train` prints at its end.
Prints a table, and ends with 1 if a ratio of measured to predicted, with or without the process on both sides, is further
from 1 than the bound. --few: the default test's decks, which take seconds.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DECK = """
[run]
directory = "run"
steps = 3
log_every = 1
[model]
layers = 8
hidden = 512
heads = 8
sequence = 256
vocabulary = 8192
dropout = 0.1
[batch]
global = 4
micro = 2
[optimizer]
learning_rate = 1e-4
[data]
train = "tokens.h5"
"""

# name, ranks, overrides
GPT = "model.family=gpt "
LLAMA = "model.family=llama model.key_value_heads=4 model.feed_forward=1376 "
BERT = "model.family=bert "
DECKS = [
    ("gpt", 1, GPT),
    ("gpt, fp64", 1, GPT + "precision.compute=fp64 model.layers=4"),
    ("gpt, bf16", 1, GPT + "precision.compute=bf16"),
    ("gpt, micro-batches of 8", 1, GPT + "batch.global=8 batch.micro=8"),
    ("gpt, selective", 1, GPT + "batch.global=8 batch.micro=8 parallel.recompute=selective"),
    ("gpt, full", 1, GPT + "batch.global=8 batch.micro=8 parallel.recompute=full"),
    ("gpt, background checkpoints", 1, GPT + "checkpoint.every=1 checkpoint.keep=1"),
    ("gpt, large vocabulary", 1, GPT + "model.layers=2 model.vocabulary=50257"),
    ("gpt, tensor 2", 2, GPT + "parallel.tensor=2 batch.micro=4"),
    ("gpt, pipeline 2", 2, GPT + "parallel.pipeline=2"),
    ("gpt, pipeline 2, zb-h1", 2, GPT + "parallel.pipeline=2 parallel.schedule=zb-h1"),
    ("gpt, data 2", 2, GPT),
    ("gpt, data 2, shard optimizer", 2, GPT + "parallel.shard=optimizer"),
    ("gpt, data 2, shard gradients", 2, GPT + "parallel.shard=gradients"),
    ("gpt, data 2, shard weights", 2, GPT + "parallel.shard=weights"),
    ("gpt, data 2, shard weights, 2 micro-batches", 2, GPT + "parallel.shard=weights batch.micro=1"),
    ("llama, untied, bf16, data 4, shard weights", 4, LLAMA + "model.tied_embeddings=false precision.compute=bf16 "
     "batch.micro=1 parallel.shard=weights parallel.recompute=full"),
    ("gpt, ramp-up", 2, GPT + "parallel.pipeline=2 batch.global=6 batch.ramp_start=2 batch.ramp_increment=2 "
     "batch.ramp_samples=6"),
    ("gpt, lamb, 4 ranks", 4, GPT + "parallel.tensor=2 optimizer.kind=lamb"),
    ("llama", 1, LLAMA),
    ("llama, fp16, data 2, shard optimizer", 2, LLAMA + "precision.compute=fp16 "
     "parallel.shard=optimizer"),
    ("llama, untied, fp64", 1, LLAMA + "precision.compute=fp64 model.layers=4 model.tied_embeddings=false"),
    ("llama, tensor 2, sequence parallel", 2, LLAMA + "parallel.tensor=2 parallel.sequence_parallel=true batch.micro=4"),
    ("llama, interleaved, background checkpoints", 2, LLAMA + "parallel.pipeline=2 parallel.schedule=interleaved "
     "parallel.chunks=2 parallel.recompute=full checkpoint.every=1"),
    ("bert", 1, BERT),
    ("bert, bf16, selective", 1, BERT + "precision.compute=bf16 parallel.recompute=selective"),
    ("bert, tensor 2, sequence parallel", 2, BERT + "parallel.tensor=2 parallel.sequence_parallel=true batch.micro=4"),
]
FEW = ["gpt", "llama, tensor 2, sequence parallel"]
FEW_OVERRIDES = "run.steps=2 batch.global=4 batch.micro=4 "


def output_of(command, folder):
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{run.stdout}{run.stderr}")
    return run.stdout


def number(pattern, text):
    found = re.search(pattern, text)
    if not found:
        sys.exit(f"no match of {pattern!r} in:\n{text}")
    return int(found.group(1).replace(",", ""))


def end_of(events):
    """The event of the last job's end."""
    return [event for event in map(json.loads, events.read_text().splitlines()) if event["event"] == "end"][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=Path)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--only", default="", help="decks whose name contains this")
    parser.add_argument("--bound", type=float, default=0.05)
    options = parser.parse_args()
    trireme = options.bin.resolve() / "trireme"
    mebi = 1 << 20
    worst = 0.0
    print(f"{'deck':44} {'ranks':>5} {'predicted':>10} {'process':>8} {'measured':>9} {'ratio':>6} {'arrays':>6}")
    with tempfile.TemporaryDirectory(prefix="trireme-memory-") as folder:
        Path(folder, "deck.toml").write_text(DECK)
        Path(folder, "text").write_text("the quick brown fox jumps over the lazy dog\n" * 20000)
        output_of([trireme, "tokenize", "-o", "tokens.h5", "text"], folder)
        for name, ranks, overrides in DECKS:
            if options.only not in name or (options.few and name not in FEW):
                continue
            words = ["deck.toml", *overrides.split(), *(FEW_OVERRIDES.split() if options.few else [])]
            checked = output_of([trireme, "check", *words, "--ranks", str(ranks)], folder)
            predicted = number(r"\n  peak .*?([\d,]+) bytes", checked)
            process = number(r"\n  process .*?([\d,]+) bytes", checked)
            launcher = [options.mpiexec, "-n", str(ranks)] if ranks > 1 else []
            output_of([*launcher, trireme, "train", *words], folder)
            measured = end_of(Path(folder, "run/events.jsonl"))["peak_bytes"]
            ratios = [measured / predicted, (measured - process) / (predicted - process)]
            worst = max(worst, *(abs(ratio - 1) for ratio in ratios))
            print(f"{name:44} {ranks:5} {predicted / mebi:6.1f} MiB {process / mebi:4.0f} MiB {measured / mebi:5.1f} MiB "
                  f"{ratios[0]:6.3f} {ratios[1]:6.3f}", flush=True)
    print(f"furthest from 1: {worst:.1%}, allowed {options.bound:.1%}")
    return 1 if worst > options.bound else 0


if __name__ == "__main__":
    sys.exit(main())
