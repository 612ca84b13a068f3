#!/usr/bin/env python3
"""Tunes a model by low-rank adapters in Trireme and with PEFT in turn, on the same cores, and prints both rates.

    compare_peft.py MODEL_FOLDER --bin build/host/bin [--rounds 3] [--ranks 2] [--steps 8] [--compute fp32] [section.key=value ...]

MODEL_FOLDER is a Llama, such as tools/smollm2 writes. Both train adapters of rank 8 of all seven products of a layer with
AdamW, 8 samples of 256 tokens per step. Trireme has `ranks` processes, PEFT one process with as many threads, at most
`--pass` samples in a pass, and fused attention. A rate is the median of the steps after the first two of a run; printed
are the best round of each and the median ratio over the rounds. Memory is the peak resident set of all processes of a run.
Needs torch, transformers and peft in the Python that runs this.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SKIPPED_STEPS = 2
SAMPLES, SEQUENCE = 8, 256
DECK = """
[run]
directory = "run"
steps = {steps}
log_every = 1
{model}
[adapter]
kind = "lora"
rank = 8
alpha = 16
targets = ["attention.query", "attention.key_value", "attention.output", "feed_forward.gate_up", "feed_forward.down"]
[batch]
global = {samples}
micro = 4
[precision]
compute = "{compute}"
[data]
train = "train.h5"
tokenizer = "{folder}"
[checkpoint]
restart = "latest"
"""


def trireme(options, scratch):
    """(tokens per second, bytes) of a run."""
    subprocess.run(["rm", "-rf", "run"], cwd=scratch, check=True)
    trireme = options.bin / "trireme"
    deck = ["deck.toml", *options.overrides]
    subprocess.run([trireme, "import", options.folder, *deck], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["mpiexec", "-n", str(options.ranks), trireme, "train", *deck], cwd=scratch, check=True,
                   stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (scratch / "run/metrics.jsonl").read_text().splitlines()]
    rates = [line["tokens_per_second"] for line in lines[SKIPPED_STEPS:]]
    return statistics.median(rates), max(line["peak_bytes"] for line in lines) * options.ranks


def peft(options):
    """The same of PEFT, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, options.folder, "--bin", ".", "--as-peft", "--steps",
                           str(options.steps), "--ranks", str(options.ranks), "--compute", options.compute, "--pass",
                           str(options.of_pass)], check=True, stdout=subprocess.PIPE, text=True)
    rate, memory = json.loads(done.stdout.splitlines()[-1])
    return rate, memory


def run_peft(options):
    import resource

    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(options.ranks)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.compute]
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=dtype, attn_implementation="sdpa")
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=names))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, fused=True)
    seconds = []
    for _ in range(options.steps):
        ids = torch.randint(0, model.config.vocab_size, (SAMPLES, SEQUENCE))
        begin = time.perf_counter()
        for part in ids.split(options.of_pass):
            (model(input_ids=part, labels=part).loss * len(part) / SAMPLES).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    rate = SAMPLES * SEQUENCE / statistics.median(seconds[SKIPPED_STEPS:])
    print(json.dumps([rate, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--compute", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--pass", dest="of_pass", type=int, default=4)
    parser.add_argument("--as-peft", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder = os.path.abspath(options.folder)
    if options.as_peft:
        return run_peft(options)
    options.bin = options.bin.resolve()
    rates, memories, ratios = {"Trireme": [], "PEFT": []}, {"Trireme": [], "PEFT": []}, []
    with tempfile.TemporaryDirectory(prefix="trireme-peft-") as scratch:
        scratch = Path(scratch)
        program = options.bin / "trireme"
        model = subprocess.run([program, "import", options.folder], check=True, stdout=subprocess.PIPE, text=True).stdout
        lines = [f"sequence = {SEQUENCE}" if line.startswith("sequence = ") else line for line in model.splitlines()]
        (scratch / "deck.toml").write_text(DECK.format(steps=options.steps, model="\n".join(lines), samples=SAMPLES,
                                                       compute=options.compute, folder=options.folder))
        subprocess.run([program, "tokenize", Path(__file__).parents[2] / "docs", "--tokenizer", options.folder, "-o",
                        "train.h5"], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
        for _ in range(options.rounds):
            for name, result in (("Trireme", trireme(options, scratch)), ("PEFT", peft(options))):
                rates[name].append(result[0])
                memories[name].append(result[1])
            ratios.append(rates["Trireme"][-1] / rates["PEFT"][-1])
    for name in rates:
        print(f"{name:8} {max(rates[name]):8.1f} tokens/s {min(memories[name]) / 2**20:8.0f} MiB")
    print(f"ratio of rates {statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)}), of memory "
          f"{min(memories['Trireme']) / min(memories['PEFT']):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
