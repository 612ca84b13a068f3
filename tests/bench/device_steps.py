"""The steps of device_report.py in order of value. Each fills job.figures, or raises Absent or Failed."""
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import small_runs
from device_job import GPT_1_7B, GPT_124M, QWEN3_A3B, ROOT, T5_LARGE, Absent, Failed, Model, device_libraries

FIRST = 480  # seconds of the first steps together: is it right, and how fast?


def small_training(steps):
    return ["train", ROOT / "inputs/tiny.toml", f"run.steps={steps}", "run.log_every=1", "optimizer.warmup_steps=1",
            f"data.train={ROOT}/data/tokens.h5"]


def machine(job):
    """Programs, driver and libraries; two steps of training show that the engine starts."""
    job.figures["libraries"] = device_libraries(job.bundle)
    if job.on_device():
        query = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit"
        try:
            found = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True,
                                   text=True, check=True, timeout=job.seconds_left())
            job.figures["devices"] = found.stdout.strip().splitlines()
        except (OSError, subprocess.SubprocessError) as error:
            job.figures["devices"] = [f"nvidia-smi: {error}"]
    job.figures["processors"] = os.cpu_count()
    job.figures["glibc"] = os.confstr("CS_GNU_LIBC_VERSION")
    job.expect(job.trireme(), *small_training(2))


def small_losses(job, name, *extra, launch=(), precision="fp64"):
    if not (job.folder / "tokens.h5").exists():
        small_runs.make_tokens(job.trireme(), job.folder)
    try:
        return small_runs.train(job.trireme(), name, precision, job.folder, job.seconds_left(), job.environment, extra,
                                launch, job.log)
    except small_runs.Failure as failure:
        raise Failed(str(failure)) from failure


def compare_runs(job, precisions, families=False):
    path = ROOT / "tests/golden/host_losses.json"
    if not path.exists():
        raise Absent("the bundle was made without --reference")
    reference = json.loads(path.read_text())
    wrong = []
    job.figures["runs"] = []
    for model, precision in small_runs.runs_of(job.trireme(), reference, small_runs.MODELS):
        if precision not in precisions or (model in small_runs.FAMILIES) != families:
            continue
        try:
            values = small_losses(job, model, precision=precision)
        except Failed as failure:
            wrong.append(str(failure))
            continue
        job.figures["runs"].append(small_runs.compared(values, reference, model, precision))
        if not job.figures["runs"][-1]["ok"]:
            wrong.append(small_runs.line_of(job.figures["runs"][-1]))
    if wrong:
        raise Failed("; ".join(wrong))


def wide_runs(job):
    """Small runs in fp64 and fp32 against a host's losses and gradient norms."""
    compare_runs(job, ("fp64", "fp32"))


def narrow_runs(job):
    """Small runs in bf16, fp16 and fp8, with heads of 64, 96 and 128, against a host's losses and gradient norms."""
    compare_runs(job, ("bf16", "fp16", "fp8"))


def family_runs(job):
    """Small runs of encoders, experts, windows, sinks and latent attention, in fp64 and bf16, against a host's."""
    compare_runs(job, ("fp64", "bf16"), families=True)


def bench(job, model, *options):
    """`trireme bench` as a dictionary of rates by section and name."""
    path = job.folder / "bench.json"
    job.expect(job.trireme(), "bench", ROOT / "inputs" / model.deck, *model.overrides(),
               f"data.train={job.tokens(model.vocabulary)}", "--json", path, *options)
    return {f"{row['section']}.{row['name']}": row["quantity"] for row in json.loads(path.read_text())["rows"]}


def bench_1_7b(job):
    """`trireme bench` of GPT 1.7B: bandwidth, matrix products and kernels; a machine file."""
    rows = bench(job, job.model(GPT_1_7B), "--machine-file", job.out / "machine.toml",
                 *(["--rounds", "1"] if job.tiny else []))
    job.figures |= {"peak_tflops": rows["matmul.peak_of_slowest_rank"] / 1e3,
                    "bandwidth_gb_per_second": rows["bandwidth.far.slowest_rank"]}
    for name, value in rows.items():
        if match := re.fullmatch(r"(matmul|kernels)\.(.*)\.(rate|share|seconds|calls)", name):
            job.figures.setdefault(match[1], {}).setdefault(match[2], {})[match[3]] = value


def train_1_7b(job):
    """Training of GPT 1.7B in bf16 on random tokens, 32 sequences of 2048 per step."""
    job.figures |= job.train(job.model(GPT_1_7B), 8)


def fp8_1_7b(job):
    """Training of GPT 1.7B as before, with matrix products in fp8."""
    if not small_runs.supports(job.trireme(), "fp8"):
        raise Absent("this version has no fp8")
    job.figures |= job.train(job.model(GPT_1_7B), 8, *small_runs.FP8)


def train_124m(job):
    """Training of GPT-2 124M in bf16 on random tokens, 128 sequences of 1024 per step."""
    job.figures |= job.train(job.model(GPT_124M), 12)


def train_experts(job):
    """Training of four layers of Qwen3-30B-A3B in bf16 on random tokens, 32 sequences of 2048 per step."""
    job.figures |= job.train(job.model(QWEN3_A3B), 8)


def train_t5(job):
    """Training of T5 1.1 large in bf16 on random tokens, 128 sources of 512 tokens per step."""
    job.figures |= job.train(job.model(T5_LARGE), 8)


def tests_of(job, program):
    """A test program, in a new process after each failure, since an error of a device stays with the process."""
    path = ROOT / "tests/bin" / program
    if not path.exists():
        raise Absent(f"the bundle has no {program}")
    listed = subprocess.run([str(path), "--gtest_list_tests"], capture_output=True, text=True, env=job.environment,
                            cwd=job.folder, timeout=job.seconds_left())
    suite, names = "", []
    for line in (text.split("#")[0].rstrip() for text in listed.stdout.splitlines()):
        if re.fullmatch(r"\S+\.", line):
            suite = line
        elif suite and re.fullmatch(r"  \S+", line):
            names.append(suite + line.strip())
    if not names:
        raise Failed(f"{program} lists no tests: {(listed.stdout + listed.stderr)[-400:]}")
    if job.tiny:
        names = names[:3]
    state = job.out / "work" / f"{program}.json"  # outcomes of earlier calls
    done = json.loads(state.read_text()) if state.exists() else {}
    try:
        while rest := [name for name in names if name not in done]:
            begin = job.log.stat().st_size if job.log.exists() else 0
            try:
                job.run(path, "--gtest_fail_fast", "--gtest_filter=" + ":".join(rest))
            finally:
                done |= outcomes(job.log.read_bytes()[begin:].decode(errors="replace"), job.seconds_left() > 0.2)
                state.write_text(json.dumps(done))
            if not any(name in done for name in rest):
                raise Failed(f"{program} runs no test: {job.tail()}")
    finally:
        found = [done[name] for name in names if name in done]
        job.figures |= {"tests": len(names), **{key: found.count(key) for key in ("passed", "failed", "skipped")},
                        "failures": [name for name in names if done.get(name) == "failed"]}
    if job.figures["failures"]:
        raise Failed(f"{len(job.figures['failures'])} of {len(names)}: " + " ".join(job.figures["failures"][:20]))


def outcomes(text, ended):
    """Outcomes of tests in a program's output. A test that neither ends nor is stopped at the limit has crashed. After a
    failure the program lists the tests that it does not run as skipped."""
    found = {}
    for kind, name in re.findall(r"^\[\s*(RUN|OK|FAILED|SKIPPED)\s*\] ([^\s,]+)", text, re.M):
        if kind == "RUN":
            found[name] = "failed" if ended else None
        elif name in found:
            found[name] = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[kind]
            if kind == "FAILED":
                break
    return {name: outcome for name, outcome in found.items() if outcome}


def tests(program):
    def step(job):
        tests_of(job, program)
    step.__doc__ = f"The tests of {program}."
    return step


def torch_lines(job, task):
    """The results of device_torch.py, or of the worker of compare_pytorch.py."""
    if importlib.util.find_spec("torch") is None:
        raise Absent(f"{sys.executable} has no PyTorch")
    job.figures["pytorch"] = importlib.metadata.version("torch")
    script = ROOT / "tests/bench/device_torch.py"
    words = [script, json.dumps(task)]
    if task["what"] == "train":
        words = [ROOT / "tests/bench/compare_pytorch.py", "--worker", json.dumps(task)]
    begin = job.log.stat().st_size if job.log.exists() else 0
    code = job.run(sys.executable, *words, environment={"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")})
    if code != 0:
        raise Failed(f"PyTorch ended with {code}: {job.tail()}")
    text = job.log.read_bytes()[begin:].decode(errors="replace")
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def torch_device(job):
    return "cuda" if job.on_device() else "cpu"


def torch_products(job):
    """PyTorch's matrix products of GPT 1.7B's shapes, for `trireme bench`'s beside them."""
    m = job.model(GPT_1_7B)
    tokens = m.micro * m.sequence
    shapes = {"attention.query": [tokens, 3 * m.hidden, m.hidden], "attention.output": [tokens, m.hidden, m.hidden],
              "feed_forward.up": [tokens, 4 * m.hidden, m.hidden], "feed_forward.down": [tokens, m.hidden, 4 * m.hidden]}
    lines = torch_lines(job, {"what": "products", "device": torch_device(job), "shapes": list(shapes.values())})
    job.figures["products"] = dict(zip(shapes, lines))


def attention_shapes(job):
    """Batch, heads, sequence and head size: 16,384 tokens of width 2048, or few."""
    return [[1, 2, 64, 16]] if job.tiny else [[8, 32, 2048, 64], [8, 21, 2048, 96], [8, 16, 2048, 128]]


def attention_rates(job):
    """Attention of Trireme, and of PyTorch beside it, for heads of 64, 96 and 128 at sequence 2048."""
    job.figures["trireme"] = []
    for batch, heads, sequence, size in attention_shapes(job):
        model = Model(GPT_1_7B.deck, 1, heads * size, heads, sequence, 512, batch, batch)
        rows = bench(job, model, "--only", "matmul,kernels", "--rounds", "2")
        job.figures["trireme"].append({"shape": [batch, heads, sequence, size], **{
            key: rows[f"kernels.attention.{key}.rate"] / 1e3 for key in ("forward", "backward")}})
    try:
        job.figures["pytorch_rates"] = torch_lines(job, {"what": "attention", "device": torch_device(job),
                                                         "shapes": attention_shapes(job)})
    except Absent as absent:
        job.figures["pytorch"] = str(absent)


def torch_training(full, compiled):
    def step(job):
        m = job.model(full)
        task = {"what": "train", "deck": m.for_pytorch(), "compiled": compiled, "threads": 1, "samples": m.micro,
                "steps": 5, "device": torch_device(job)}
        line = torch_lines(job, task)[-1]
        job.figures |= {"step_seconds": line["seconds"], "mib": line["bytes"] / 2**20,
                        "tokens_per_second": m.samples * m.sequence / line["seconds"]}
    step.__doc__ = f"PyTorch {'compiled' if compiled else 'eager'}, training as in the step of the same model."
    return step


def sanitizer(tool):
    def step(job):
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not job.on_device() or not Path(program).exists():
            raise Absent("no compute-sanitizer" if job.on_device() else "kernels run on the host")
        job.expect(program, "--tool", tool, "--error-exitcode", "86", ROOT / "bin/trireme-engine", *small_training(2),
                   "model.hidden=128", "model.heads=2", "batch.global=2", "batch.micro=1", "precision.compute=bf16")
        job.figures["summary"] = re.findall(r"=+ (.*(?:ERROR|HAZARD|RACECHECK) SUMMARY.*)", job.log.read_text())
    step.__doc__ = f"compute-sanitizer's {tool} on two steps of a small model."
    return step


def restart(job):
    """Two equal runs and a restarted one have the same bits; evaluation and generation from a checkpoint."""
    model = "gpt_k64"
    first = small_losses(job, model, "checkpoint.every=10", precision="bf16")
    second = small_losses(job, model, precision="bf16")
    checkpoint = job.folder / "run_0/checkpoints/step_00000010"
    words = ["model.hidden=128", "model.heads=2", "model.sequence=128", small_runs.RATE, "data.train=tokens.h5"]
    job.expect(job.trireme(), "train", ROOT / "inputs/tiny.toml", *small_runs.COMMON[:-1], *words,
               "precision.compute=bf16", "run.directory=again", f"checkpoint.restart={checkpoint}")
    third = small_runs.values_of(job.folder / "again/metrics.jsonl")
    job.figures |= {"repeated": first == second,
                    "restarted": all(first[key][10:] == third[key] for key in small_runs.COMPARED)}
    job.expect(job.trireme(), "eval", job.folder / "run_0/deck.toml", "--data", "tokens.h5")
    job.expect(job.trireme(), "generate", job.folder / "run_0/deck.toml", "--prompt", "The ", "--tokens", "20")
    if not job.figures["repeated"] or not job.figures["restarted"]:
        raise Failed("equal runs have different bits")


def ranks(job, *extra):
    """Two ranks with tensor and pipeline parallelism against one, in fp64."""
    one = small_losses(job, "gpt")
    for axis in ("tensor", "pipeline", "data"):
        two = small_losses(job, "gpt", f"parallel.{axis}=2", *extra, launch=[ROOT / "bin/mpiexec", "-n", "2"])
        bound = small_runs.FP64 * max(one["loss"])
        job.figures[axis] = {"deviation": small_runs.deviation(one["loss"], two["loss"]), "tolerance": bound}
    wrong = [axis for axis, found in job.figures.items() if found["deviation"] > found["tolerance"]]
    if wrong:
        raise Failed(f"two ranks do not agree with one: {', '.join(wrong)}")


def shared_device(job):
    """Two ranks that share one device, messages through MPI, against one rank in fp64."""
    ranks(job, "parallel.share_devices=true", "parallel.transport=mpi")


def nccl(job):
    """Two ranks with a device each, messages through NCCL, against one rank in fp64."""
    if not job.on_device():
        raise Absent("kernels run on the host")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    if listed.count("GPU ") < 2:
        raise Absent("one device only")
    ranks(job, "parallel.transport=nccl")


def trace(job):
    """libtrireme-trace.so on three steps."""
    library = ROOT / "lib/libtrireme-trace.so"
    if not library.exists():
        raise Absent("the bundle has no libtrireme-trace.so")
    job.expect(job.trireme(), *small_training(3),
               environment={"KOKKOS_TOOLS_LIBS": str(library), "KOKKOS_PROFILE_LIBRARY": str(library)})
    lines = (job.folder / "trace/rank_000000.json").read_text().splitlines()[1:]
    events = [json.loads(line.rstrip(",")) for line in lines]
    job.figures["kernels"] = sum(event.get("cat") in ("for", "reduce", "scan") for event in events)
    if job.figures["kernels"] == 0:
        raise Failed("the trace has no kernels")


def options_124m(job):
    """GPT-2 124M with recomputation, offload and portable attention: rates, and losses as without."""
    model = job.model(GPT_124M)
    plain = job.train(model, 5, name="plain")
    for name, extra in (("recompute", "parallel.recompute=full"), ("offload", "parallel.offload=both"),
                        ("portable_attention", "precision.attention=portable")):
        found = job.train(model, 5, extra, name=name)
        job.figures[name] = {"tokens_per_second": found["tokens_per_second"], "planned_mib": found["planned_mib"],
                             "relative_rate": found["tokens_per_second"] / plain["tokens_per_second"],
                             "same_losses": found["losses"] == plain["losses"]}
    different = [name for name in ("recompute", "offload") if not job.figures[name]["same_losses"]]
    if different:
        raise Failed(f"{', '.join(different)} changed the losses")


def checkpoint_124m(job):
    """`trireme bench` of checkpoints of GPT-2 124M."""
    rows = bench(job, job.model(GPT_124M), "--only", "checkpoint", f"checkpoint.directory={job.folder}/checkpoints")
    job.figures["rows"] = {name: value for name, value in rows.items() if name.startswith("checkpoint.")}


# Name, limit in seconds, step. The first ones together take FIRST seconds at most.
STEPS = [
    ("machine", 30, machine),
    ("wide_runs", 60, wide_runs),
    ("narrow_runs", 60, narrow_runs),
    ("bench_1_7b", 100, bench_1_7b),
    ("train_1_7b", 80, train_1_7b),
    ("train_124m", 50, train_124m),
    ("test_kernels", 100, tests("test_kernels")),
    ("family_runs", 60, family_runs),
    ("train_experts", 50, train_experts),
    ("train_t5", 50, train_t5),
    ("pytorch_1_7b", 70, torch_training(GPT_1_7B, False)),
    ("pytorch_124m_compiled", 70, torch_training(GPT_124M, True)),
    ("fp8_1_7b", 40, fp8_1_7b),
    ("restart", 50, restart),
    ("attention_rates", 60, attention_rates),
    ("torch_products", 40, torch_products),
    ("memcheck", 60, sanitizer("memcheck")),
    ("test_model", 60, tests("test_model")),
    ("test_optim", 45, tests("test_optim")),
    ("test_train", 90, tests("test_train")),
    ("racecheck", 50, sanitizer("racecheck")),
    ("shared_device", 40, shared_device),
    ("nccl", 50, nccl),
    ("test_grid", 30, tests("test_grid")),
    ("test_installation", 15, tests("test_installation")),
    ("options_124m", 50, options_124m),
    ("trace", 15, trace),
    ("checkpoint_124m", 25, checkpoint_124m),
]
