"""Jobs of the fault drivers: a folder with tokens and a deck, commands that run in it with a time limit, and what is
left of a run afterwards. Processes of a job are found by a word in their environment, whoever started them."""
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path

from mutations import Checksums

DECK = """[run]
directory = "run"
steps = 4
log_every = 1
[model]
family = "llama"
layers = 1
hidden = 24
heads = 4
key_value_heads = 2
sequence = 29
vocabulary = 257
dropout = 0.1
[batch]
global = 4
micro = 1
[optimizer]
learning_rate = 1e-2
warmup_steps = 2
decay_steps = 1000
[data]
train = "data/tokens.h5"
[checkpoint]
every = 2
restart = "latest"
"""
HANG_SECONDS = 120
MARK = "TRIREME_FAULT_JOB"
# A crash, a library's own error, or an exception that nobody has put into words.
RAW = re.compile(r"BAD TERMINATION.*signal|terminate called|std::|what\(\)|Segmentation|Assertion|HDF5-DIAG|H5E|"
                 r"json\.exception|toml::|runtime_error|basic_string|bad_alloc|AddressSanitizer|Fatal error in")


class Result:
    def __init__(self, code, out, err, seconds, hangs):
        self.code, self.out, self.err, self.seconds, self.hangs = code, out, err, seconds, hangs

    def errors(self):
        return [line for line in self.err.split("\n") if line.startswith("trireme: error: ")]

    def complaints(self, may_fail=True):
        """What no run may do, whatever happens to it."""
        if self.hangs:
            return [f"no end after {HANG_SECONDS} s"]
        found = [f"raw words: {match.group()}" for match in [RAW.search(self.err)] if match]
        if self.code not in ((0, 1, 2) if may_fail else (0,)):
            found.append(f"exit code {self.code}")
        if self.code in (1, 2) and len(self.errors()) != 1:
            found.append(f"{len(self.errors())} errors in place of one")
        return found


def take_in_orphans():
    """Processes whose parents died become children of this one, so that none stays behind."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def processes_of(mark):
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


class Job:
    """A line of shell in a folder. Its output is in files, so that no pipe keeps it waiting."""
    number = 0
    lock = threading.Lock()

    def __init__(self, line, folder, programs, environment=None):
        self.mark = uuid.uuid4().hex
        with Job.lock:
            Job.number += 1
            self.files = [Path(folder).parent / f"{kind}-{Job.number}" for kind in ("out", "err")]
        names = ("PMI_", "PMIX_", "OMPI_", "SLURM_", "TRIREME_", "FAULT_", "OMP_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        own.update({"LC_ALL": "C", "OMP_NUM_THREADS": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                    "ASAN_OPTIONS": own.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0", "PATH": f"{programs}:{own['PATH']}", MARK: self.mark})
        own.update(environment or {})
        self.begin = time.monotonic()
        with open(self.files[0], "wb") as out, open(self.files[1], "wb") as err:
            self.process = subprocess.Popen(["sh", "-c", line], cwd=folder, env=own, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=err, start_new_session=True)

    def kill(self):
        while pids := processes_of(self.mark):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
                except (OSError, ChildProcessError):
                    pass
            self.process.poll()
            time.sleep(0.002)
        self.process.wait()

    def wait(self, seconds=HANG_SECONDS):
        hangs = False
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            hangs = True
            self.kill()
        texts = [path.read_bytes().decode("utf-8", "backslashreplace") for path in self.files]
        for path in self.files:
            path.unlink()
        code = self.process.returncode
        return Result(code if code >= 0 else 128 - code, *texts, time.monotonic() - self.begin, hangs)


class Runs:
    """The programs, and folders that jobs run in."""

    def __init__(self, options, root):
        self.programs = Path(options.bin).resolve()
        self.mpiexec = shutil.which(options.mpiexec) or options.mpiexec
        self.library = Path(options.library).resolve() / "libfailing_calls.so"
        self.checksums = Checksums(Path(options.library).resolve() / "libfault_checksums.so")
        self.source = Path(__file__).parents[2]
        self.root = Path(root)
        self.kept = Path(options.keep) if options.keep else None
        self.base = self.folder("base")
        words = "".join(f"the quick brown fox {i * i % 97} jumps\n" for i in range(400))
        (self.base / "text").write_text(words)
        (self.base / "deck.toml").write_text(DECK)
        (self.base / "data").mkdir()
        self.must(self.base, "trireme tokenize -o data/tokens.h5 --document-separator '\\n' text")

    def folder(self, name="attempt"):
        """A folder of its own, in one that holds the job's output too."""
        path = self.root / f"{name}-{uuid.uuid4().hex[:8]}" / "work"
        path.mkdir(parents=True)
        return path

    def copy(self, of=None):
        path = self.folder()
        shutil.copytree(of or self.base, path, symlinks=True, dirs_exist_ok=True)
        return path

    def remove(self, folder):
        shutil.rmtree(Path(folder).parent, ignore_errors=True)

    def start(self, folder, line, environment=None):
        return Job(line, folder, self.programs, environment)

    def run(self, folder, line, environment=None):
        return self.start(folder, line, environment).wait()

    def keep(self, path):
        """A copy of a file that broke a promise, in the folder of --keep."""
        if not self.kept or not path.exists():
            return path.name
        self.kept.mkdir(parents=True, exist_ok=True)
        to = self.kept / f"{uuid.uuid4().hex[:8]}-{path.name}"
        shutil.copy(path, to)
        return to

    def must(self, folder, line):
        done = self.run(folder, line)
        if done.code != 0:
            raise SystemExit(f"{line}: exit code {done.code}\n{done.err}{done.out}")
        return done

    def train(self, ranks, arguments=""):
        return (f"{self.mpiexec} -n {ranks} " if ranks > 1 else "") + f"trireme train deck.toml {arguments}"

    def verify(self, folder, checkpoints="run/checkpoints"):
        """Complaints about checkpoints that have their final names."""
        found = []
        for path in saved(folder / checkpoints):
            done = self.run(folder, f"trireme inspect --verify {checkpoints}/{path.name}")
            if done.code != 0:
                found.append(f"{path.name} is not whole: {done.err.strip()}")
        return found


def saved(directory):
    """The folders of complete checkpoints, ascending."""
    return sorted(path for path in directory.glob("step_*") if re.fullmatch(r"step_\d{8}", path.name))


def newest(directory):
    paths = saved(directory)
    return int(paths[-1].name[5:]) if paths else 0


def numbers(folder, run="run"):
    """[(step, loss, gradient norm)] as text: what a run must give bit for bit."""
    path = folder / run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    keys = ("step", "loss", "gradient_norm", "learning_rate")
    return [tuple(json.loads(line, parse_float=str)[key] for key in keys) for line in lines]


def content(checkpoint):
    """The checksums of all slices of a checkpoint, by array and place; `verify` says that they are those of the numbers."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    names = [array["name"] for array in manifest["arrays"]]
    slices = sorted((names[s[0]], s[1], s[2], s[4]) for shard in manifest["shards"] for s in shard["slices"])
    return manifest["step"], manifest["samples"], manifest["values"], slices


class Reference:
    """An uninterrupted run."""

    def __init__(self, runs, ranks, arguments):
        folder = runs.copy()
        runs.must(folder, runs.train(ranks, arguments))
        self.numbers = numbers(folder)
        self.last = saved(folder / "run/checkpoints")[-1]
        self.content = content(self.last)
        self.folder = folder

    def complaints(self, folder):
        """What differs in a folder whose run has ended well."""
        found = []
        if numbers(folder) != self.numbers:
            found.append("numbers of steps differ from the reference's")
        last = folder / "run/checkpoints" / self.last.name
        if not last.exists():
            found.append(f"{last.name} is missing")
        elif content(last) != self.content:
            found.append(f"{last.name} differs from the reference's")
        return found
