"""What the steps of device_report.py share: programs of the bundle, their environment, runs of training."""
import json
import os
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import time
from array import array
from pathlib import Path

import timed_process

ROOT = Path(__file__).resolve().parents[2]
SKIPPED_STEPS = 2  # of each run: first touches, choice of algorithms


class Absent(Exception):
    """The machine lacks what a step needs; the step does not fail."""


class Failed(Exception):
    """A step found a defect."""


class Model:
    """Sizes of a deck's model, in full or reduced to seconds on a host. `extra` and `small` are other overrides, in full and
    reduced."""

    def __init__(self, deck, layers, hidden, heads, sequence, vocabulary, samples, micro, extra=(), small=()):
        self.deck, self.layers, self.hidden, self.heads = deck, layers, hidden, heads
        self.sequence, self.vocabulary, self.samples, self.micro = sequence, vocabulary, samples, micro
        self.extra, self.small = extra, small

    def reduced(self):
        sequence = 64 if self.sequence > 128 else 14
        return Model(self.deck, 2, 64, 2, sequence, 512, 4, 2, self.small, self.small)

    def overrides(self):
        return [f"model.layers={self.layers}", f"model.hidden={self.hidden}", f"model.heads={self.heads}",
                f"model.sequence={self.sequence}", "model.dropout=0",
                f"batch.global={self.samples}", f"batch.micro={self.micro}", "parallel.data=0", "parallel.recompute=none",
                "precision.compute=bf16", "checkpoint.restart=none", "checkpoint.every=0", "run.log_every=1",
                "run.steps=100000", "run.evaluate_every=0",
                *([] if any(word.startswith("model.vocabulary=") for word in self.extra)
                  else [f"model.vocabulary={self.vocabulary}"]), *self.extra]

    def for_pytorch(self):
        """What the worker of compare_pytorch.py reads of a deck."""
        return {"model": {"layers": self.layers, "hidden": self.hidden, "heads": self.heads, "sequence": self.sequence,
                          "vocabulary": self.vocabulary, "feed_forward": 4 * self.hidden},
                "batch": {"global": self.samples, "micro": self.micro}, "precision": {"compute": "bf16"}}


GPT_1_7B = Model("paper/gpt_1.7b.toml", 24, 2304, 24, 2048, 51200, 32, 4)
GPT_124M = Model("gpt2_124m.toml", 12, 768, 12, 1024, 50257, 128, 32)
# Four layers of Qwen3-30B-A3B: 2.6 billion parameters, of which a token uses 0.33.
QWEN3_A3B = Model("paper/gpt_1.7b.toml", 4, 2048, 32, 2048, 51200, 32, 4,
                  ["model.family=qwen3_moe", "model.key_value_heads=4", "model.head_size=128", "experts.feed_forward=768"],
                  ["model.family=qwen3_moe", "model.key_value_heads=2", "model.head_size=32", "experts.number=8",
                   "experts.active=2", "experts.feed_forward=32"])
# The size of T5 1.1 large, with ids after those of the texts for start, end and sentinels. The decoder's sequence follows from 512 tokens of a source.
T5_LARGE = Model("tiny_t5.toml", 24, 1024, 16, 114, 32128, 128, 32,
                 ["encoder.layers=24", "encoder.sequence=512", "model.feed_forward=2816", "model.activation=geglu",
                  "model.tied_embeddings=false", "model.scaled_logits=false", "model.vocabulary=32256",
                  "data.start_token=32255", "data.end_token=32254", "data.sentinel_token=32253"],
                 ["encoder.sequence=64", "model.vocabulary=640", "data.start_token=639", "data.end_token=638",
                  "data.sentinel_token=637"])


def library_folders():
    """Where CUDA's libraries may be: the toolkit, and the packages that PyTorch installs."""
    found = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    found += sorted(Path("/usr/local").glob("cuda*/lib64")) + sorted(Path("/usr/local").glob("cuda*/lib"))
    packages = [Path(part) for part in sys.path if part.endswith("-packages")]
    found += [folder for part in packages for folder in sorted(part.glob("nvidia/*/lib"))]
    return found + [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64")]


def device_libraries(bundle):
    """Paths of the libraries that the bundle does not have, by name; None if not found."""
    found = {}
    for name in bundle["device_libraries"]:
        folders = [ROOT / "lib", *library_folders()]
        found[name] = next((str(folder / name) for folder in folders if (folder / name).exists()), None)
    return found


def write_random_tokens(stem, tokens, vocabulary):
    """A token file of Megatron-LM's format with uniformly distributed ids, as docs/token_files.md describes it."""
    numbers = random.Random(1)
    ids = array("H", bytes(2 * tokens))
    for i in range(tokens):
        ids[i] = numbers.getrandbits(30) % vocabulary
    Path(f"{stem}.bin").write_bytes(ids.tobytes())
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<iqqq", tokens, 0, 0, 1)
    Path(f"{stem}.idx").write_bytes(header)


class Job:
    """One step's access to programs, files and its remaining time."""

    def __init__(self, out, bundle, tiny, name, limit):
        self.out, self.bundle, self.tiny, self.name = out, bundle, tiny, name
        self.end = time.monotonic() + limit
        self.log = out / "logs" / f"{name}.txt"
        self.folder = out / "work" / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.log.parent.mkdir(exist_ok=True)
        self.figures = {}  # kept if the step fails
        folders = {str(Path(path).parent) for path in device_libraries(bundle).values() if path}
        before = os.environ.get("LD_LIBRARY_PATH")
        libraries = ":".join([*sorted(folders), *([before] if before else [])])
        self.environment = os.environ | {"TRIREME_SOURCE_DIR": str(ROOT), "TRIREME_STAND_INS":
                                         str(ROOT / "tests/nccl_stand_in")}
        if libraries:
            self.environment["LD_LIBRARY_PATH"] = libraries

    def on_device(self):
        return self.bundle["device"] != "host"

    def model(self, full):
        return full.reduced() if self.tiny else full

    def seconds_left(self):
        return max(self.end - time.monotonic(), 0.1)

    def run(self, *words, environment=None, until=None):
        """Runs a command in the step's folder; the exit code."""
        return timed_process.run(words, self.seconds_left(), self.log, self.folder,
                                 self.environment | (environment or {}), until)

    def expect(self, *words, environment=None, until=None):
        """As run(); an exit code other than 0 fails the step."""
        code = self.run(*words, environment=environment, until=until)
        if code not in (0, None):
            raise Failed(f"{' '.join(map(str, words))[:160]} ended with {code}: {self.tail()}")

    def tail(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        wrong = [line for line in lines if re.search(r"error|FAILED|Error", line)]
        return " | ".join((wrong or lines)[-3:])[:600]

    def trireme(self):
        return ROOT / "bin/trireme"

    def tokens(self, vocabulary):
        """A file of random tokens, which all steps share."""
        stem = self.out / "work" / f"tokens_{vocabulary}"
        if not Path(f"{stem}.idx").exists():
            write_random_tokens(stem, 20_000 if self.tiny else 1_500_000, vocabulary)
        return stem

    def train(self, model, steps, *extra, name="run"):
        """Rates of a training run that is stopped after `steps` steps, before it would save a checkpoint."""
        metrics = self.folder / name / "metrics.jsonl"
        memory = DeviceMemory(self)

        def enough():
            memory.sample()
            return metrics.exists() and metrics.read_bytes().count(b"\n") >= steps

        self.expect(self.trireme(), "train", ROOT / "inputs" / model.deck, *model.overrides(), f"run.directory={name}",
                    f"data.train={self.tokens(model.vocabulary)}", *extra, until=enough)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()[:steps]]
        if len(lines) < steps:
            raise Failed(f"training ended after {len(lines)} of {steps} steps: {self.tail()}")
        events = [json.loads(line) for line in (self.folder / name / "events.jsonl").read_text().splitlines()]
        event = {e["event"]: e for e in events}
        kept = lines[SKIPPED_STEPS:]
        return {"tokens_per_second": statistics.median(line["tokens_per_second"] for line in kept),
                "step_seconds": statistics.median(line["step_seconds"] for line in kept),
                "mfu": statistics.median(line["flops_utilization"] for line in kept),
                "measured_peak_tflops": event["training"]["peak_flops"] / 1e12,
                "losses": [line["loss"] for line in lines], "products": event["devices"]["products"],
                "attention": event["devices"]["attention"], "planned_mib": event["devices"]["planned_bytes"] / 2**20,
                "used_mib": memory.most}


class DeviceMemory:
    """The most memory that the device's driver reported, in MiB; None without nvidia-smi."""

    def __init__(self, job):
        self.program = shutil.which("nvidia-smi") if job.on_device() else None
        self.most, self.last = None, 0.0

    def sample(self):
        if self.program is None or time.monotonic() < self.last + 2:
            return
        self.last = time.monotonic()
        done = subprocess.run([self.program, "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True)
        used = [int(word) for word in done.stdout.split() if word.isdigit()]
        self.most = max([*used, self.most or 0]) if used else self.most
