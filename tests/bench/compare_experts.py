#!/usr/bin/env python3
"""Predicted steps of mixtures of experts beside published ones.

    compare_experts.py --bin FOLDER [--machine FILE] [--bound PERCENT]

experts_steps.csv (beside this script) has steps of arXiv 2504.14960, Tables 3 to 5:
Mixtral 8x22B, the same with experts of an eighth of the width, Qwen2 57B and Llama 3 8x70B on 64 to 1024 H100. Times are
those that count attention causally. The source states neither chunks nor recomputation nor micro-batches: the rows have
pipeline stages of one layer each, no recomputation and micro-batches of one sample.

The machine file describes Megatron-Core with experts divided among tensor and data ranks together (`folding`). METHODS has
the keys of [software] that differ for the other ways of training.

Prints a row per step, and the mean and median absolute percentage error of each method and of all. Ends with 1 if the mean
error of all is above --bound.
"""
import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS = Path(__file__).resolve().with_name("experts_steps.csv")
# FSDP sums gradients after each micro-batch, because it does not hold them. Except with `folding`, tensor ranks split every
# expert (experts.split).
METHODS = {
    "folding": {},
    "megatron_core": {},
    "tensor_expert_data": {},
    "fsdp": {"sums_each_pass": "true"},
    "fsdp_expert": {"sums_each_pass": "true"},
}


def machine_of(text, changes):
    """The machine file with changed keys of [software], its last section."""
    lines = [line for line in text.splitlines() if line.split(" = ")[0] not in changes]
    return "\n".join(lines + [f"{key} = {value}" for key, value in changes.items()]) + "\n"


def predict(program, machine, rows):
    """Predicted seconds of each row."""
    with tempfile.TemporaryDirectory() as folder:
        steps, file = Path(folder) / "steps.csv", Path(folder) / "machine.toml"
        file.write_text(machine)
        with steps.open("w", newline="") as out:
            writer = csv.DictWriter(out, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        done = subprocess.run([program, "predict", str(steps), "--machine", str(file), "--json", "precision.compute=bf16"],
                              capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return [row["predicted_seconds"] for row in json.loads(done.stdout)]


def summary(name, errors):
    sizes = [abs(e) for e in errors]
    print(f"{name}: {len(sizes)} steps, mean absolute error {statistics.mean(sizes):.1%}, median "
          f"{statistics.median(sizes):.1%}, mean deviation {statistics.mean(errors):+.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of trireme")
    parser.add_argument("--machine", help="machine file; default: inputs/machines/h100_megatron_core.toml")
    parser.add_argument("--bound", type=float, default=float("inf"), help="largest accepted mean error, in percent")
    options = parser.parse_args()
    program = str(Path(options.bin).resolve() / "trireme")
    machine = Path(options.machine or ROOT / "inputs" / "machines" / "h100_megatron_core.toml").read_text(encoding="utf-8")
    lines = STEPS.read_text(encoding="utf-8").splitlines()
    all_rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    errors = {}
    print("| method | model | GPUs | tokens per sample | tensor · context · pipeline · data | expert | published | predicted | "
          "deviation |\n|---|---|---|---|---|---|---|---|---|")
    for method, changes in METHODS.items():
        rows = [row for row in all_rows if row["method"] == method]
        errors[method] = []
        for row, seconds in zip(rows, predict(program, machine_of(machine, changes), rows)):
            published = float(row["step_ms"]) / 1e3
            errors[method].append(seconds / published - 1)
            layout = " · ".join(row[name] for name in ("tensor", "parallel.context", "pipeline", "data"))
            print(f"| `{method}` | {row['model']} | {row['gpus']} | {int(row['sequence']):,} | {layout} | "
                  f"{row['parallel.expert']} | {published:.2f} s | {seconds:.2f} s | {100 * errors[method][-1]:+.1f} % |")
    print()
    for method, some in errors.items():
        summary(method, some)
    together = [e for some in errors.values() for e in some]
    summary("all", together)
    return 0 if 100 * statistics.mean(map(abs, together)) <= options.bound else 1


if __name__ == "__main__":
    sys.exit(main())
