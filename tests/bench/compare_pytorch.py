#!/usr/bin/env python3
"""Trains the same model in Trireme and in PyTorch in turn, on the same cores, and prints both rates and their ratio.

    compare_pytorch.py --bin build/host/bin [--only model,small,attention] [--rounds 3] [--ranks 2]
                       [--deck inputs/bench_gpt.toml] [section.key=value ...]

`model` is the deck's, one optimizer step per 8 sequences; `small` has 4 layers, hidden size 256, sequence 256 and the
byte vocabulary, micro-batches of 8; `attention` is forward and backward of causal attention alone, sequence 2048, head
size 64, on one core. PyTorch has one process with as many threads as Trireme has ranks, its fused attention, its fused
AdamW, no dropout, and takes as many of a step's sequences in a pass as is fastest (--passes names the candidates);
eager, and through torch.compile. Each run is a process of its own; Trireme, eager and compiled alternate. A rate is the median
of the steps behind the first two of a run; printed is the best round of each and, of the ratios, the median over rounds.

MFU is model FLOPs (docs/performance.md) over the matrix-product peak that Trireme measures at the start of its run, for
both. Memory is the high-water mark of the resident set, of all of a run's processes together; torch.compile's compilers
are not counted. With --device cuda it is what PyTorch's allocator gave out, and the arenas of Trireme. Needs PyTorch in
the Python that runs this.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

SMALL = ["model.layers=4", "model.hidden=256", "model.heads=4", "model.sequence=256", "model.vocabulary=257",
         "batch.global=32", "batch.micro=8"]
SKIPPED_STEPS = 2  # of each run: first touches, compilation


def model_of(deck):
    """GPT-2 as Trireme has it: learned positions, norms in front, GELU by tanh, tied embeddings."""
    import torch
    from torch import nn
    from torch.nn import functional as F
    m = deck["model"]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            d, f = m["hidden"], m["feed_forward"]
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, f), nn.Linear(f, d)

        def forward(self, x):
            b, s, d = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, m["heads"], d // m["heads"]).permute(2, 0, 3, 1, 4)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(o.transpose(1, 2).reshape(b, s, d))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(m["vocabulary"], m["hidden"])
            self.position = nn.Embedding(m["sequence"], m["hidden"])
            self.layers = nn.ModuleList(Layer() for _ in range(m["layers"]))
            self.norm = nn.LayerNorm(m["hidden"])
            for p in self.parameters():
                nn.init.normal_(p, std=0.02) if p.dim() > 1 else None

        def forward(self, ids, targets):
            x = self.token(ids) + self.position.weight[: ids.shape[1]]
            for layer in self.layers:
                x = layer(x)
            logits = F.linear(self.norm(x), self.token.weight)
            return F.cross_entropy(logits.view(-1, m["vocabulary"]), targets.reshape(-1))

    torch.manual_seed(1)
    return Gpt()


def resident_peak():
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


def torch_training(deck, compiled, threads, samples, steps, device):
    import torch
    torch.set_num_threads(threads)
    m, total = deck["model"], deck["batch"]["global"]
    model = model_of(deck).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    loss_of = torch.compile(model) if compiled else model
    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(deck["precision"]["compute"])
    seconds, last = [], 0.0
    for _ in range(steps):
        ids = torch.randint(m["vocabulary"], (total, m["sequence"] + 1), device=device)
        begin = time.perf_counter()
        for first in range(0, total, samples):
            part = ids[first:first + samples]
            with torch.autocast(device, dtype=narrow, enabled=narrow is not None):
                loss = loss_of(part[:, :-1], part[:, 1:]) * (samples / total)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        last = loss.item()  # waits for a device
        seconds.append(time.perf_counter() - begin)
    assert last == last, "PyTorch's loss is not a number"
    taken = torch.cuda.max_memory_allocated() if device == "cuda" else resident_peak()
    return {"seconds": statistics.median(seconds[SKIPPED_STEPS:]), "bytes": taken}


def torch_attention(backward):
    import torch
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 4, 2048, 64, requires_grad=backward) for _ in range(3))
    gradient = torch.randn(1, 4, 2048, 64)
    seconds = []
    for _ in range(30):
        begin = time.perf_counter()
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        if backward:
            torch.autograd.grad(o, (q, k, v), gradient)
        seconds.append(time.perf_counter() - begin)
    return {"seconds": statistics.median(seconds[5:])}


def worker(task):
    """What a process of its own measures: a JSON object in, one out."""
    if task["what"] == "attention":
        return torch_attention(task["backward"])
    return torch_training(task["deck"], task["compiled"], task["threads"], task["samples"], task["steps"],
                          task["device"])


def in_process(options, task):
    done = subprocess.run([sys.executable, __file__, "--worker", json.dumps(task)], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": str(task.get("threads", 1))})
    if done.returncode != 0:
        sys.exit(f"compare_pytorch: PyTorch ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def planned_bytes(events):
    """The sum of the arenas on a rank's device."""
    return next(event["planned_bytes"] for event in map(json.loads, events.read_text().splitlines())
                if event["event"] == "devices")


class Trireme:
    def __init__(self, options, folder):
        self.options, self.folder, self.runs = options, Path(folder), 0
        text = self.folder / "text.txt"
        text.write_bytes(b"".join(path.read_bytes() for path in sorted(Path(options.deck).parent.rglob("*.toml"))) * 200)
        self.tokens = self.folder / "tokens.h5"
        self.call("tokenize", str(text), "-o", str(self.tokens))

    def call(self, *command, ranks=None):
        launch = [self.options.mpiexec, "-n", str(ranks)] if ranks else []
        done = subprocess.run([*launch, str(Path(self.options.bin) / "trireme"), *command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"compare_pytorch: trireme {' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def overrides(self, mine):
        return [f"data.train={self.tokens}", "checkpoint.restart=none", "checkpoint.every=0", *mine,
                *self.options.overrides]

    def deck(self, mine):
        """As it resolves, whatever file and overrides it came from."""
        return tomllib.loads(self.call("check", "--resolved", "--ranks", str(self.options.ranks), self.options.deck,
                                       *self.overrides(mine)))

    def train(self, mine, steps):
        self.runs += 1
        directory = self.folder / f"run{self.runs}"
        self.call("train", self.options.deck, f"run.directory={directory}", f"run.steps={steps}", "run.log_every=1",
                  *self.overrides(mine), ranks=self.options.ranks)
        lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        kept = lines[SKIPPED_STEPS:]
        return {"seconds": statistics.median(line["step_seconds"] for line in kept),
                "mfu": statistics.median(line["flops_utilization"] for line in kept),
                "bytes": self.options.ranks * (lines[-1]["peak_bytes"] if self.options.device == "cpu"
                                               else planned_bytes(directory / "events.jsonl"))}

    def attention(self, backward):
        """Seconds of one core, of the same shape as PyTorch's."""
        def seconds(which):
            out = subprocess.run([str(Path(self.options.bin) / "bench_attention"), "--benchmark_format=json",
                                  f"--benchmark_filter=^fp32/{which}/K64/S2048$"], stdout=subprocess.PIPE, text=True,
                                 check=True).stdout
            return json.loads(out[out.index("{"):])["benchmarks"][0]["real_time"] / 1e3
        return {"seconds": seconds("forward") + (seconds("backward") if backward else 0)}


def passes_of(options, deck):
    """Sequences that PyTorch takes at a time, which divide the batch."""
    total = deck["batch"]["global"]
    named = [int(n) for n in options.passes.split(",")] if options.passes else \
        [deck["batch"]["micro"], deck["batch"]["micro"] * options.ranks, total]
    return sorted({n for n in named if total % n == 0})


def compare_training(options, trireme, name, mine, steps):
    deck = trireme.deck(mine)
    m, total = deck["model"], deck["batch"]["global"]
    tokens = total * m["sequence"]
    print(f"\n{name}: {m['layers']} layers, hidden {m['hidden']}, sequence {m['sequence']}, vocabulary "
          f"{m['vocabulary']}, {total} sequences per step, {deck['precision']['compute']}, {options.ranks} ranks or "
          "threads")

    def task(compiled, samples, count):
        return {"what": "train", "deck": deck, "compiled": compiled, "threads": options.ranks, "samples": samples,
                "steps": count, "device": options.device}

    best = {}  # sequences per pass, each chosen by a short run
    for compiled in (False, True):
        passes = passes_of(options, deck)
        best[compiled] = passes[0]
        if len(passes) == 1:
            continue
        tried = {n: in_process(options, task(compiled, n, SKIPPED_STEPS + 1))["seconds"] for n in passes}
        best[compiled] = min(tried, key=tried.get)
        print(f"  PyTorch {'compiled' if compiled else 'eager'}, seconds per step by sequences in a pass: " +
              ", ".join(f"{n}: {s:.3f}" for n, s in tried.items()))
    rounds = []
    for _ in range(options.rounds):
        sys.stdout.flush()
        rounds.append([trireme.train(mine, steps), in_process(options, task(False, best[False], steps)),
                       in_process(options, task(True, best[True], steps))])
    names = ["Trireme", "PyTorch eager", "PyTorch compiled"]
    for i, who in enumerate(names):
        fastest = min(rounds, key=lambda r: r[i]["seconds"])
        mfu = statistics.median(r[0]["mfu"] * r[0]["seconds"] / r[i]["seconds"] for r in rounds)
        memory = min(r[i]["bytes"] for r in rounds)
        print(f"  {who:<17} {tokens / fastest[i]['seconds']:>10.0f} tokens/s   MFU {100 * mfu:5.1f} %   "
              f"{memory / 2**20:8.0f} MiB")
    for i in (1, 2):
        ratios = [r[i]["seconds"] / r[0]["seconds"] for r in rounds]
        print(f"  Trireme / {names[i]}: {statistics.median(ratios):.2f} of the rate "
              f"({', '.join(f'{x:.2f}' for x in ratios)}), "
              f"{min(r[0]['bytes'] for r in rounds) / min(r[i]['bytes'] for r in rounds):.2f} of the memory")


def compare_attention(options, trireme):
    print("\nattention: causal, sequence 2048, 4 heads of 64, fp32, one core")
    for backward in (False, True):
        rounds = [(trireme.attention(backward)["seconds"],
                   in_process(options, {"what": "attention", "backward": backward})["seconds"])
                  for _ in range(options.rounds)]
        ours, theirs = (min(r[i] for r in rounds) for i in (0, 1))
        ratios = [b / a for a, b in rounds]
        print(f"  {'forward + backward' if backward else 'forward':<18} Trireme {1e3 * ours:7.2f} ms   PyTorch "
              f"{1e3 * theirs:7.2f} ms   {statistics.median(ratios):.2f} times its rate "
              f"({', '.join(f'{x:.2f}' for x in ratios)})")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--worker":
        print(json.dumps(worker(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of trireme and bench_attention")
    parser.add_argument("--deck", default=str(Path(__file__).resolve().parents[2] / "inputs" / "bench_gpt.toml"))
    parser.add_argument("--only", default="model,small,attention")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="of the model's runs; the small one's take 12")
    parser.add_argument("--passes", help="sequences that PyTorch takes at a time, to choose from: 2,4,8")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of PyTorch")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("overrides", nargs="*", help="of Trireme's deck")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trireme = Trireme(options, folder)
        chosen = options.only.split(",")
        if "model" in chosen:
            compare_training(options, trireme, "model", ["model.dropout=0"], options.steps)
        if "small" in chosen:
            compare_training(options, trireme, "small", ["model.dropout=0", *SMALL], 12)
        if "attention" in chosen:
            compare_attention(options, trireme)


if __name__ == "__main__":
    main()
