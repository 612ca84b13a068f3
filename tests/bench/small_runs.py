#!/usr/bin/env python3
"""Losses and gradient norms of small training runs, for comparing a device with a host.

    small_runs.py --bin FOLDER --write losses.json           # on a host
    small_runs.py --bin FOLDER --compare losses.json         # anywhere

Each model trains 20 steps on the text of this repository's LICENSE. Dropout masks, weights and samples do not depend on the
machine, so both differ by rounding alone. Adam hides a wrong scale of all gradients from the losses; the norms show it.

Tolerances. Let L_p be the host's values with type p, and L_64 those in double precision. max |L_p - L_64| over the steps is
the effect of rounding to p on this model. Another order of sums gives another sample of this effect, so that two machines
differ by at most twice its bound; SAFETY = 4 allows for a maximum of 20 values that is below the bound. In fp64 values agree
to 1e-10 of the largest one, the agreement that Trireme promises for all layouts.
"""
import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import timed_process

ROOT = Path(__file__).resolve().parents[2]
STEPS = 20
SAFETY = 4
FP64 = 1e-10
COMPARED = ("loss", "gradient_norm")
COMMON = [f"run.steps={STEPS}", "run.log_every=1", "checkpoint.every=0", "checkpoint.restart=none"]

# Deck, overrides, number types. Tensor-core attention has heads of 64, 96 and 128; the decks have heads of 16. The learning
# rate is low enough for losses that fall at every width: a run that diverges amplifies rounding without bound.
RATE = "optimizer.learning_rate=5e-4"
MODELS = {
    "gpt": ("tiny.toml", [], ["fp64", "fp32"]),
    "llama": ("tiny_llama.toml", [], ["fp64", "fp32"]),
    "bert": ("tiny_bert.toml", [], ["fp64", "fp32"]),
    "gpt_k64": ("tiny.toml", ["model.hidden=128", "model.heads=2", "model.sequence=128", RATE], ["bf16", "fp16", "fp8"]),
    "gpt_k96": ("tiny.toml", ["model.hidden=192", "model.heads=2", "model.sequence=96", RATE], ["bf16"]),
    "llama_k128": ("tiny_llama.toml", ["model.hidden=256", "model.heads=2", "model.key_value_heads=1",
                                       "model.sequence=128", RATE], ["bf16", "fp8"]),
    "bert_k64": ("tiny_bert.toml", ["model.hidden=128", "model.heads=2", "model.sequence=128", RATE], ["bf16"]),
}
# Encoders, experts, windows, sinks, latent attention and further predicted tokens.
EXPERTS = ["experts.number=8", "experts.active=2"]
FAMILIES = {
    "t5": ("tiny_t5.toml", [], ["fp64"]),
    "experts": ("tiny.toml", ["model.biases=none", *EXPERTS, "experts.feed_forward=64"], ["fp64"]),
    "gemma2": ("tiny_llama.toml", ["model.family=gemma2", "model.window=16", "model.tied_embeddings=true"], ["fp64"]),
    "gpt_oss": ("tiny_llama.toml", ["model.family=gpt_oss", "model.head_size=16", "model.window=16", *EXPERTS], ["fp64"]),
    "deepseek_v3": ("tiny_llama.toml", ["model.family=deepseek_v3", "model.key_value_heads=4", "model.head_size=24",
                                        "model.value_size=16", "model.rotary_size=8", "model.key_value_rank=32",
                                        "model.query_rank=48", *EXPERTS, "experts.first_layer=1", "experts.groups=4",
                                        "experts.active_groups=2", "model.predicts=2"], ["fp64"]),
    "t5_k64": ("tiny_t5.toml", ["model.hidden=128", "model.heads=2", RATE], ["bf16"]),
    "experts_k64": ("tiny.toml", ["model.biases=none", *EXPERTS, "experts.feed_forward=128", "model.hidden=128",
                                  "model.heads=2", "model.sequence=128", RATE], ["bf16"]),
}
MODELS |= FAMILIES


FP8 = ["precision.compute=bf16", "precision.products=fp8"]


class Failure(Exception):
    """A run did not end as it should."""


def supports(trireme, precision):
    """Whether this version has the type."""
    if precision != "fp8":
        return True
    keys = subprocess.run([str(trireme), "help", "deck"], capture_output=True, text=True).stdout
    return re.search(r"^  products ", keys, re.M) is not None


def values_of(metrics):
    lines = [line for line in metrics.read_text().splitlines() if line.endswith("}")] if metrics.exists() else []
    return {key: [json.loads(line)[key] for line in lines] for key in COMPARED}


def train(trireme, model, precision, folder, seconds=300, environment=None, extra=(), launch=(), log=None):
    """Losses and norms of a model's run in `folder`, which has tokens.h5; its output is added to `log`."""
    log = log or folder / "log"
    deck, overrides, _ = MODELS[model]
    run = f"run_{len(list(folder.glob('run_*')))}"
    words = [*launch, trireme, "train", ROOT / "inputs" / deck, *COMMON, *overrides, f"run.directory={run}",
             "data.train=tokens.h5", *(FP8 if precision == "fp8" else [f"precision.compute={precision}"]), *extra]
    code = timed_process.run(words, seconds, log, folder, environment)
    values = values_of(folder / run / "metrics.jsonl")
    steps = len(values["loss"])
    if code != 0 or steps != STEPS:
        tail = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
        raise Failure(f"{model}, {precision}: exit code {code}, {steps} of {STEPS} steps: {tail[:500]}")
    return values


def make_tokens(trireme, folder):
    done = subprocess.run([str(trireme), "tokenize", "-o", str(folder / "tokens.h5"), str(ROOT / "LICENSE")],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"trireme tokenize ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def deviation(one, other):
    """The largest difference; infinite if a value is not a number."""
    worst = max((abs(a - b) for a, b in zip(one, other)), default=math.inf)
    return worst if len(one) == len(other) and all(map(math.isfinite, one)) else math.inf


def tolerance(reference, precision, key):
    exact = reference["fp64"][key]
    if precision == "fp64":
        return FP64 * max(exact)
    return SAFETY * deviation(reference[precision][key], exact)


def runs_of(trireme, reference, models):
    """Models and types that the reference and this version have."""
    return [(model, precision) for model in models for precision in MODELS[model][2]
            if precision in reference.get(model, {}) and supports(trireme, precision)]


def compared(values, reference, model, precision):
    """One run against the host's, as an entry of a report."""
    entry = {"model": model, "precision": precision, "first": values["loss"][0], "last": values["loss"][-1]}
    for key in COMPARED:
        entry[key] = deviation(values[key], reference[model][precision][key])
        entry[key + "_tolerance"] = tolerance(reference[model], precision, key)
    return entry | {"ok": all(entry[key] <= entry[key + "_tolerance"] for key in COMPARED)}


def line_of(entry):
    return ("{model:<11} {precision}  largest difference of losses {loss:.1e} (tolerance {loss_tolerance:.1e}), of gradient "
            "norms {gradient_norm:.1e} ({gradient_norm_tolerance:.1e})").format(**entry) + ("" if entry["ok"] else
                                                                                         "  TOO LARGE")


def write(trireme, path, chosen):
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_tokens(trireme, folder)
        values = {model: {p: train(trireme, model, p, folder) for p in sorted({*MODELS[model][2], "fp64"})
                          if supports(trireme, p)} for model in chosen}
    path.write_text(json.dumps(values) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="folder of trireme and trireme-engine")
    parser.add_argument("--write", type=Path, metavar="FILE", help="file for the values of this build")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="values of another build to compare with")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS), metavar="NAMES",
                        help=f"models, separated by commas; default {','.join(MODELS)}")
    options = parser.parse_args()
    trireme = options.bin.resolve() / "trireme"
    try:
        if options.write:
            write(trireme, options.write, options.models)
            return 0
        if not options.compare:
            parser.error("give --write or --compare")
        reference = json.loads(options.compare.read_text())
        entries = []
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            make_tokens(trireme, folder)
            for model, precision in runs_of(trireme, reference, options.models):
                values = train(trireme, model, precision, folder)
                entries.append(compared(values, reference, model, precision))
                print(line_of(entries[-1]), flush=True)
        return 0 if all(entry["ok"] for entry in entries) else 1
    except Failure as failure:
        sys.exit(f"small_runs: {failure}")


if __name__ == "__main__":
    sys.exit(main())
