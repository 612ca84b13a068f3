#!/usr/bin/env python3
"""Step times as `trireme check --machine` predicts them, beside measured ones.

    reproduce_paper.py --bin FOLDER [--machine FILE] [--bound PERCENT]     Table 1 of arXiv 2104.04473, decks in inputs/paper
    reproduce_paper.py --bin FOLDER --decks                                only compares these decks with the table
    reproduce_paper.py --bin FOLDER --csv FILE --machine FILE              other runs, a deck is made from each row

paper_table1.csv (beside this script) has the facts of Table 1: models, layouts and TFLOP/s per GPU, with the micro-batches,
schedules and chunks of the authors' scripts (Megatron-LM, examples/sc21/run_table_1.sh). Its step_ms follows from the
TFLOP/s by the paper's equation 3, which counts the full square of attention and recomputation as a fourth pass.

A CSV has one run per row, with the columns model (a label), layers, hidden, heads, sequence, vocabulary, gpus, tensor,
pipeline, data, schedule, chunks, micro, global_batch, recompute, step_ms; and if they apply key_value_heads, feed_forward,
family, dropout, tied_embeddings, precision, sequence_parallel, zero_stage, memory_gb. Labels that begin with "llama" are
of that family, in bf16, without dropout; others are gpt in fp16 with dropout 0.1 and a vocabulary padded to a multiple of
128 x tensor, as Megatron-LM pads it.

Prints a row per run, by deviation, and the mean and median absolute percentage error; for each model with several layouts
also the rank correlation (Spearman) of predicted and measured times, and the loss: how much longer the layout with the
shortest predicted time takes than the best one. Ends with 1 if the mean error of the times is above --bound.
"""
import argparse
import collections
import concurrent.futures
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE_1 = Path(__file__).resolve().with_name("paper_table1.csv")
# Keys of the JSON that `trireme check` writes.
SECONDS = "step_seconds"
MEMORY = "memory_bytes"


def flops(row):
    """FLOPs of a step by the paper's equation 3."""
    samples, s, l, h = (float(row[name]) for name in ("global_batch", "sequence", "layers", "hidden"))
    return 96 * samples * s * l * h * h * (1 + s / (6 * h) + float(row["vocabulary"]) / (16 * l * h))


def teraflops(row, seconds):
    return flops(row) / (int(row["gpus"]) * seconds) / 1e12


class Trireme:
    def __init__(self, folder):
        self.program = str(Path(folder).resolve() / "trireme")

    def output(self, *words):
        done = subprocess.run([self.program, *map(str, words)], cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"trireme {' '.join(map(str, words))}: {done.stdout}{done.stderr}")
        return done.stdout

    def prediction(self, deck, ranks, machine, overrides=()):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            self.output("check", deck, "--ranks", ranks, "--machine", machine, "--json", file.name, *overrides)
            return json.loads(Path(file.name).read_text())

    def seconds(self, *arguments):
        return self.prediction(*arguments)[SECONDS]


# Table 1 and its decks

def paper_deck(row):
    return ROOT / "inputs" / "paper" / f"{row['model'].replace('1008.0b', '1t')}.toml"


def wanted(row):
    """The row's values as keys of a resolved deck."""
    whole = lambda name: int(row[name])
    return {
        "model": {"family": "gpt", "layers": whole("layers"), "hidden": whole("hidden"), "heads": whole("heads"),
                  "sequence": whole("sequence"), "vocabulary": whole("vocabulary"), "feed_forward": 4 * whole("hidden"),
                  "tied_embeddings": True, "dropout": 0.1},
        "parallel": {"tensor": whole("tensor"), "pipeline": whole("pipeline"), "data": whole("data"),
                     "schedule": row["schedule"], "chunks": whole("chunks"), "recompute": row["recompute"],
                     "sequence_parallel": False, "shard": "none"},
        "batch": {"global": whole("global_batch"), "micro": whole("micro")},
        "precision": {"compute": "fp16"},
    }


def deck_differences(trireme, rows):
    for row in rows:
        deck = paper_deck(row)
        resolved = tomllib.loads(trireme.output("check", deck, "--ranks", row["gpus"], "--resolved"))
        for section, keys in wanted(row).items():
            for name, value in keys.items():
                found = resolved[section][name]
                if found != value:
                    yield f"{deck.relative_to(ROOT)}: [{section}] {name} = {found}, in Table 1 {value}"
        micro_batches = int(row["global_batch"]) // (int(row["data"]) * int(row["micro"]))
        if micro_batches != int(row["micro_batches"]):
            yield f"{TABLE_1.name}: {row['model']} has {micro_batches} micro-batches, not {row['micro_batches']}"
        if abs(teraflops(row, float(row["step_ms"]) / 1e3) / float(row["tflops_per_gpu"]) - 1) > 1e-3:
            yield f"{TABLE_1.name}: step_ms of {row['model']} does not follow from its TFLOP/s"


def table_1(trireme, machine, rows):
    """Prints the table as Markdown; returns the relative errors."""
    print("| model | GPUs | TFLOP/s per GPU, measured | predicted | step, measured | predicted | deviation |\n"
          "|---|---|---|---|---|---|---|")
    errors = []
    for row in rows:
        seconds = trireme.seconds(paper_deck(row), row["gpus"], machine)
        measured = float(row["step_ms"]) / 1e3
        errors.append(seconds / measured - 1)
        print(f"| `{paper_deck(row).stem}` | {row['gpus']} | {float(row['tflops_per_gpu']):.0f} | "
              f"{teraflops(row, seconds):.1f} | {measured:.2f} s | {seconds:.2f} s | {100 * errors[-1]:+.1f} % |")
    return errors


# Other runs

def deck_of(row):
    """A deck for the run in this row."""
    llama = row.get("family", row["model"]).startswith("llama")
    text = lambda value: value if value in ("true", "false") else json.dumps(value)
    tensor = int(row["tensor"])
    multiple = 1 if llama else 128 * tensor
    keys = {
        "model": {
            "family": text("llama" if llama else "gpt"),
            "layers": row["layers"], "hidden": row["hidden"], "heads": row["heads"], "sequence": row["sequence"],
            "vocabulary": -(-int(row["vocabulary"]) // multiple) * multiple,
            "key_value_heads": row.get("key_value_heads") or row["heads"],
            "feed_forward": row.get("feed_forward") or 4 * int(row["hidden"]),
            "dropout": row.get("dropout") or (0.0 if llama else 0.1),
            "tied_embeddings": row.get("tied_embeddings") or text("false" if row["model"] == "llama_8b" else "true"),
        },
        "parallel": {
            "tensor": tensor, "pipeline": row["pipeline"], "data": row["data"], "schedule": text(row["schedule"]),
            "chunks": row["chunks"], "recompute": text(row["recompute"]),
            "sequence_parallel": text("true" if row.get("sequence_parallel") == "1" else "false"),
            "shard": text(["none", "optimizer", "gradients", "weights"][int(row.get("zero_stage") or 0)]),
        },
        "batch": {"global": row["global_batch"], "micro": row["micro"]},
        "precision": {"compute": text(row.get("precision") or ("bf16" if llama else "fp16"))},
        "data": {"train": text("none.h5")},
    }
    return "".join(f"[{section}]\n" + "".join(f"{name} = {value}\n" for name, value in of.items())
                   for section, of in keys.items())


def ranks_of(values):
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(values)
    return [order.index(v) + (order.count(v) + 1) / 2 for v in values]


def spearman(a, b):
    a, b = ranks_of(a), ranks_of(b)
    return statistics.correlation(a, b) if len(set(a)) > 1 and len(set(b)) > 1 else float("nan")


def predict_rows(trireme, machine, rows):
    """(row, seconds, bytes or None) of each run."""
    def one(row):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as deck:
            deck.write(deck_of(row))
            deck.flush()
            found = trireme.prediction(deck.name, row["gpus"], machine)
            return row, found[SECONDS], found.get(MEMORY)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, rows))


def print_rows(runs):
    runs = sorted(runs, key=lambda run: run[1] / float(run[0]["step_ms"]))
    print(f"{'row':>4} {'model':12}{'gpus':>5}{'t':>4}{'p':>4}{'d':>4} {'schedule':12}{'chunks':>7}{'micro':>6}{'m':>5}"
          f"{'measured s':>12}{'predicted s':>12}{'deviation':>11}{'measured GB':>13}{'predicted GB':>13}{'deviation':>11}")
    for row, seconds, memory in runs:
        measured = float(row["step_ms"]) / 1e3
        micro_batches = int(row["global_batch"]) // (int(row["data"]) * int(row["micro"]))
        line = (f"{row.get('row', ''):>4} {row['model']:12}{row['gpus']:>5}{row['tensor']:>4}{row['pipeline']:>4}"
                f"{row['data']:>4} {row['schedule']:12}{row['chunks']:>7}{row['micro']:>6}{micro_batches:>5}"
                f"{measured:12.3f}{seconds:12.3f}{seconds / measured - 1:+11.1%}")
        if row.get("memory_gb") and memory is not None:
            real = float(row["memory_gb"])
            line += f"{real:13.1f}{memory / 1e9:13.1f}{memory / 1e9 / real - 1:+11.1%}"
        print(line)


def print_orders(runs):
    """For each model on so many GPUs with one batch: whether the prediction finds its fast layouts."""
    groups = collections.defaultdict(list)
    for row, seconds, _ in runs:
        groups[row["model"], row["gpus"], row["global_batch"]].append((seconds, float(row["step_ms"]) / 1e3))
    print(f"\n{'model':12}{'GPUs':>6}{'batch':>7}{'layouts':>9}{'mean error':>12}{'rank correlation':>18}{'loss of best':>14}")
    correlations, losses = [], []
    for (model, gpus, batch), pairs in sorted(groups.items()):
        predicted, measured = zip(*pairs)
        error = statistics.mean(abs(p / m - 1) for p, m in pairs)
        line = f"{model:12}{gpus:>6}{batch:>7}{len(pairs):9}{error:12.1%}"
        if len(pairs) > 1:
            correlations.append(spearman(predicted, measured))
            losses.append(min(pairs)[1] / min(measured) - 1)
            line += f"{correlations[-1]:18.2f}{losses[-1]:14.1%}"
        print(line)
    if losses:
        print(f"mean rank correlation {statistics.mean(correlations):.2f}, mean loss of the predicted best "
              f"{statistics.mean(losses):.1%}")


def summary(errors, what):
    sizes = [abs(e) for e in errors]
    print(f"\n{what} of {len(sizes)} runs: mean absolute error {statistics.mean(sizes):.2%}, median "
          f"{statistics.median(sizes):.2%}, mean deviation {statistics.mean(errors):+.2%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of trireme")
    parser.add_argument("--machine", help="machine file; default: inputs/machines/selene.toml")
    parser.add_argument("--csv", help="runs to predict instead of Table 1")
    parser.add_argument("--decks", action="store_true", help="only compare the decks with Table 1")
    parser.add_argument("--bound", type=float, default=float("inf"), help="largest accepted mean error of the times, in percent")
    options = parser.parse_args()
    if options.csv and not options.machine:
        parser.error("--csv needs --machine: the machine file of the cluster and its software")
    trireme = Trireme(options.bin)
    machine = Path(options.machine or ROOT / "inputs" / "machines" / "selene.toml").resolve()

    rows = list(csv.DictReader(Path(options.csv or TABLE_1).read_text(encoding="utf-8").splitlines()))
    if options.csv:
        runs = predict_rows(trireme, machine, rows)
        print_rows(runs)
        errors = [seconds / (float(row["step_ms"]) / 1e3) - 1 for row, seconds, _ in runs]
        print_orders(runs)
        memory = [found / 1e9 / float(row["memory_gb"]) - 1 for row, _, found in runs
                  if row.get("memory_gb") and found is not None]
        if memory:
            summary(memory, "memory")
    else:
        differences = list(deck_differences(trireme, rows))
        if differences or options.decks:
            print("\n".join(differences) or f"{len(rows)} decks are the runs of Table 1")
            return 1 if differences else 0
        errors = table_1(trireme, machine, rows)
    summary(errors, "times")
    return 0 if 100 * statistics.mean(map(abs, errors)) <= options.bound else 1


if __name__ == "__main__":
    sys.exit(main())
