#!/usr/bin/env python3
"""Predicted steps and memory against real runs on this machine.

    compare_machine.py --bin FOLDER [--mpiexec mpiexec] [--only NAME] [--repeat 3] [--keep FOLDER]

Measures this machine with `trireme bench --machine-file`, once for each model and number of ranks, with the layout of the
first case that has them. Predicts each case with that file, trains some steps of it, and prints predicted beside measured.
Time is the median of a run's steps after the first two. Each case runs several times, in turn with the others, and the
run with the smallest median counts: other programs only make steps longer. Memory is the high-water mark of the resident
set of the rank that had most (compare_memory.py). Ends with 1 if a mean absolute deviation is above its bound.
"""
import argparse
import csv
import json
import statistics
import sys
import tempfile
from pathlib import Path

from compare_memory import end_of, number, output_of

DECK = """
[run]
directory = "run"
steps = 8
log_every = 1
[model]
layers = 4
hidden = 256
heads = 4
sequence = 256
vocabulary = 4096
[batch]
global = 12
micro = 2
[optimizer]
learning_rate = 1e-4
[data]
train = "tokens.h5"
"""
MODEL = dict(line.split(" = ") for line in DECK.splitlines() if " = " in line)

GPT = "model.family=gpt model.dropout=0.1 "
LLAMA = "model.family=llama model.key_value_heads=2 model.feed_forward=704 model.dropout=0 "
BERT = "model.family=bert model.dropout=0.1 "
BF16 = "precision.compute=bf16 "

# name, model, ranks, layout
CASES = [
    ("gpt", GPT, 1, ""),
    ("gpt, full recomputation", GPT, 1, "parallel.recompute=full"),
    ("llama, bf16", LLAMA + BF16, 1, ""),
    ("bert, micro-batches of 4", BERT, 1, "batch.micro=4"),
    ("gpt, tensor 2", GPT, 2, "parallel.tensor=2"),
    ("gpt, pipeline 2", GPT, 2, "parallel.pipeline=2"),
    ("gpt, interleaved, selective", GPT, 2, "parallel.pipeline=2 parallel.schedule=interleaved parallel.chunks=2 "
     "parallel.recompute=selective"),
    ("llama, zb-h1", LLAMA, 2, "parallel.pipeline=2 parallel.schedule=zb-h1"),
    ("llama, data 2, shard optimizer", LLAMA, 2, "parallel.shard=optimizer"),
    ("bert, tensor 2, sequence parallel", BERT, 2, "parallel.tensor=2 parallel.sequence_parallel=true"),
    ("gpt, data 3", GPT, 3, ""),
    ("llama, bf16, tensor 2, pipeline 2", LLAMA + BF16, 4, "parallel.tensor=2 parallel.pipeline=2"),
]


class Bench:
    """Commands of one build in a folder with a deck and its data."""

    def __init__(self, options, folder):
        self.trireme = options.bin.resolve() / "trireme"
        self.mpiexec = options.mpiexec
        self.folder = Path(folder).resolve()
        self.files = {}
        (self.folder / "deck.toml").write_text(DECK)
        (self.folder / "text").write_text("the quick brown fox jumps over the lazy dog\n" * 20000)
        output_of([self.trireme, "tokenize", "-o", "tokens.h5", "text"], self.folder)

    def run(self, ranks, *words):
        launcher = [self.mpiexec, "-n", str(ranks)] if ranks > 1 else []
        return output_of([*launcher, self.trireme, *words], self.folder)

    def machine_file(self, model, ranks, layout):
        """Measured with the first layout of a model on so many ranks."""
        if (model, ranks) not in self.files:
            name = f"machine_{len(self.files)}.toml"
            self.run(ranks, "bench", "deck.toml", *model.split(), *layout.split(), "--machine-file", name)
            self.files[model, ranks] = name
        return self.files[model, ranks]

    def predict(self, model, ranks, layout):
        """Seconds and bytes."""
        keys = dict(word.split("=") for word in (model + layout).split())
        checked = self.run(1, "check", "deck.toml", *(f"{key}={value}" for key, value in keys.items()), "--ranks",
                           str(ranks))
        tensor, pipeline = (int(keys.pop(f"parallel.{axis}", 1)) for axis in ("tensor", "pipeline"))
        row = {"model": keys.pop("model.family"), "tensor": tensor, "pipeline": pipeline,
               "data": ranks // (tensor * pipeline), "step_ms": 1, "global_batch": MODEL["global"],
               "micro": keys.pop("batch.micro", MODEL["micro"])}
        row |= {name: MODEL[name] for name in ("layers", "hidden", "heads", "sequence", "vocabulary")} | keys
        with open(self.folder / "rows.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, row)
            writer.writeheader()
            writer.writerow(row)
        found = self.run(1, "predict", "rows.csv", "--machine", self.machine_file(model, ranks, layout), "--json")
        return json.loads(found)[0]["predicted_seconds"], number(r"\n  peak .*?([\d,]+) bytes", checked)

    def train(self, model, ranks, layout):
        """Median seconds of a run's steps, and bytes."""
        output_of(["rm", "-rf", "run"], self.folder)
        self.run(ranks, "train", "deck.toml", *model.split(), *layout.split())
        metrics = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        seconds = [step["step_seconds"] for step in metrics][2:]
        return statistics.median(seconds), end_of(self.folder / "run/events.jsonl")["peak_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=Path)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", help="folder that keeps the machine files and the last run")
    parser.add_argument("--time-bound", type=float, default=0.08)
    parser.add_argument("--memory-bound", type=float, default=0.015)
    options = parser.parse_args()
    cases = [case[1:] for case in CASES if options.only in case[0]]
    names = [case[0] for case in CASES if options.only in case[0]]
    with tempfile.TemporaryDirectory(prefix="trireme-machine-") as temporary:
        if options.keep:
            Path(options.keep).mkdir(parents=True, exist_ok=True)
        bench = Bench(options, options.keep or temporary)
        predicted = [bench.predict(*case) for case in cases]
        runs = [[bench.train(*case) for case in cases] for _ in range(options.repeat)]
    errors = []
    print(f"{'case':36} {'ranks':>5} {'predicted':>10} {'measured':>9} {'':>7} {'predicted':>11} {'measured':>10}")
    for i, (name, case) in enumerate(zip(names, cases)):
        seconds = min(run[i][0] for run in runs)
        memory = statistics.median(run[i][1] for run in runs)
        errors.append((predicted[i][0] / seconds - 1, predicted[i][1] / memory - 1))
        print(f"{name:36} {case[1]:5} {predicted[i][0]:8.3f} s {seconds:7.3f} s {errors[-1][0]:+7.1%} "
              f"{predicted[i][1] / 2**20:7.1f} MiB {memory / 2**20:6.1f} MiB {errors[-1][1]:+6.1%}")
    time, memory = (statistics.mean(abs(error[i]) for error in errors) for i in (0, 1))
    print(f"mean absolute deviation of time {time:.1%} (bound {options.time_bound:.1%}), of memory {memory:.1%} "
          f"(bound {options.memory_bound:.1%})")
    return 1 if time > options.time_bound or memory > options.memory_bound else 0


if __name__ == "__main__":
    sys.exit(main())
