#!/usr/bin/env python3
"""Launches of a training step: kernels, matrix products and copies, per step, micro-batch and block of logits.

    count_launches.py --bin FOLDER [--deck DECK] [--expect STEP,MICRO_BATCH,BLOCK] [override ...]

Trains a few steps of the deck's model on one rank of the host, with widths that take no time, under libtrireme-trace.so, and
counts the events of the last step: with one micro-batch and two, of one block of logits and of two (of bert's masked tokens
there is one block always, counted with the micro-batch).
Counts depend on layers and on the family, not on widths. From them follow those of a device with cuBLASLt and bf16, as
ON_DEVICE below says. Prints a line for each kernel, sums, and what a launch's time on the host comes to. Ends with 1 if these
sums are not those that were expected.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Launches there for one here: biases and the slope of GELU's tanh form are in the product, sums of columns take two.
ON_DEVICE = {
    "kernels/linear_bias": 0,
    "kernels/gelu_backward": 0,
    "kernels/linear_backward_bias": 2,
    "kernels/layer_norm_backward_weight": 2,
    "kernels/rms_norm_backward_weight": 2,
}

PRODUCT = "kernels/matmul"
SMALL = ["run.directory=run", "run.steps=3", "run.log_every=1", "run.evaluate_every=0", "data.train=tokens.h5",
         "data.validation=", "optimizer.warmup_steps=1", "optimizer.decay_steps=3", "checkpoint.every=0",
         "checkpoint.restart=none", "precision.compute=bf16", "parallel.data=1", "parallel.tensor=1",
         "parallel.pipeline=1", "parallel.recompute=none", "model.dropout=0"]


def run(command, folder, **environment):
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True,
                          env=os.environ | environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")


def events_of_step(trace):
    """Launches and copies by name; what lies in a product is the library's."""
    counts = collections.Counter()
    open_events = []
    for line in trace.read_text().splitlines()[1:]:
        event = json.loads(line.rstrip(","))
        if event["ph"] == "E":
            open_events.pop()
        if event["ph"] != "B":
            continue
        kind, name = event["cat"], event["name"]
        in_step = any(o == ("region", "step") for o in open_events)
        in_product = any(o == ("region", PRODUCT) for o in open_events)
        open_events.append((kind, name))
        if in_step and not in_product and (kind != "region" or name == PRODUCT) and kind != "fence":
            counts["copies" if kind == "copy" else name] += 1
    return counts


def count(args, folder, micro_batches, blocks):
    """Of as many micro-batches of so many blocks of logits each: 64 rows and more of large vocabularies are a block."""
    vocabulary, sequence = (260, 8) if blocks == 1 else (2**18, 64 * blocks)
    sizes = [f"model.vocabulary={vocabulary}", f"model.sequence={sequence}", "batch.micro=1",
             f"batch.global={micro_batches}", f"model.hidden={2 * args.heads}", f"model.heads={args.heads}"]
    run([args.bin / "trireme", "train", args.deck] + SMALL + sizes + args.overrides, folder,
        KOKKOS_TOOLS_LIBS=str(args.tool), KOKKOS_PROFILE_LIBRARY=str(args.tool), TRIREME_TRACE="trace",
        TRIREME_TRACE_STEPS="3")
    return events_of_step(folder / "trace" / "rank_000000.json")


def difference(a, b):
    return collections.Counter({name: a[name] - b[name] for name in a | b})


def shares(args, folder):
    """What a step has once, a micro-batch beside its blocks, and a block; checked by a step with two of each."""
    one = count(args, folder, 1, 1)
    block = difference(count(args, folder, 1, 2), one)
    micro = difference(difference(count(args, folder, 2, 1), one), block)
    step = difference(difference(one, micro), block)
    for name, n in count(args, folder, 2, 2).items():
        if n != step[name] + 2 * micro[name] + 4 * block[name]:
            sys.exit(f"{name}: {n} in a step of two micro-batches with two blocks each, expected {step[name]} + "
                     f"2 x {micro[name]} + 4 x {block[name]}")
    return [step, micro, block]


def on_device(counts):
    return collections.Counter({name: n * ON_DEVICE.get(name, 1) for name, n in counts.items()})


def table(parts):
    print(f"{'':44}{'a step':>8}{'a micro-batch':>15}{'a block of logits':>19}")
    for name in sorted(set().union(*parts)):
        numbers = [part[name] for part in parts]
        if any(numbers):
            print(f"{name:44}{numbers[0]:8}{numbers[1]:15}{numbers[2]:19}")
    for what, wanted in (("products", lambda n: n == PRODUCT), ("kernels", lambda n: n not in (PRODUCT, "copies")),
                         ("launches and copies", lambda n: True)):
        sums = [sum(n for name, n in part.items() if wanted(name)) for part in parts]
        print(f"{what:44}{sums[0]:8}{sums[1]:15}{sums[2]:19}")
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--deck", type=Path, default=Path(__file__).parents[2] / "inputs" / "gpt2_124m.toml")
    parser.add_argument("--heads", type=int, default=2, help="of the small model (default 2)")
    parser.add_argument("--launch", type=float, default=5, help="microseconds of the host for one (default 5)")
    parser.add_argument("--expect", help="launches and copies of a device: of a step, a micro-batch and a block of logits")
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    args.bin, args.deck = args.bin.resolve(), args.deck.resolve()
    args.tool = args.bin.parent / "lib" / "libtrireme-trace.so"
    if not args.tool.exists():
        sys.exit(f"{args.tool} is missing: build trireme-trace")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text("a quick brown fox " * 500)
        run([args.bin / "trireme", "tokenize", "text.txt", "-o", "tokens.h5"], folder)
        parts = shares(args, folder)
    print("on this host")
    table(parts)
    there = [on_device(part) for part in parts]
    print("\non a device with cuBLASLt, bf16")
    step, micro, block = table(there)
    print(f"\nhost time at {args.launch:g} us a launch: {step * args.launch / 1000:.2f} ms a step, "
          f"{micro * args.launch / 1000:.2f} ms a micro-batch, {block * args.launch / 1000:.3f} ms a block of logits")
    if args.expect and args.expect != f"{step},{micro},{block}":
        sys.exit(f"launches and copies are {step},{micro},{block}, expected {args.expect}: docs/notes/rates.md, too")


if __name__ == "__main__":
    main()
