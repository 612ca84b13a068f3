"""Every call of a run on its files fails in turn, once or for good. The run continues with the reference's numbers, or
ends with one error that names the file and a documented exit code. Whole checkpoints stay whole, and the same command
without the fault then gives the reference's numbers bit for bit."""
import errno
import os
import re
import zlib
from pathlib import Path

from runs import Reference, content, newest, numbers, saved

WRITES = ("ENOSPC", "EIO", "short", "EDQUOT")
READS = ("EIO", "short", "ESTALE")
NAMES = ("EIO", "EACCES", "ENOSPC", "EROFS")
ERRORS = {"open": ("EIO", "EACCES", "EMFILE"), "openat": ("EIO", "EACCES"), "fopen": ("EIO", "EMFILE"), "read": READS,
          "pread": READS, "write": WRITES, "pwrite": WRITES, "fallocate": ("ENOSPC", "EIO", "EOPNOTSUPP"),
          "fsync": ("EIO", "ENOSPC"), "fdatasync": ("EIO", "ENOSPC"), "close": ("EIO", "ENOSPC"),
          "mmap": ("ENOMEM", "ENODEV"), "copy_file_range": ("EXDEV", "EIO"),
          **{call: ("EIO", "EACCES") for call in ("stat", "lstat", "fstat", "access", "opendir", "readdir", "fstatvfs",
                                                   "lseek")},
          **{call: NAMES for call in ("rename", "renameat2", "link", "unlink", "unlinkat", "remove", "rmdir", "mkdir",
                                      "ftruncate", "truncate")}}


class Row:
    """A command whose calls fail. `before` prepares the folder; `makes` are its products: a run's folder, or files that
    are equal byte for byte, or show the error if `tells`. It `refuses` to make a product that is already there: a failure
    after the product is whole cannot be repeated. With `soak`, only the long form has the row."""

    def __init__(self, name, line, before="", makes=(), ranks=1, tells=False, refuses=False, soak=False):
        self.name, self.line, self.before, self.makes, self.ranks = name, line, before, makes, ranks
        self.tells, self.refuses, self.soak = tells, refuses, soak


TWO_STEPS = "trireme train deck.toml run.steps=2"
TABLE = [
    *[Row(f"train, {ranks} rank{'s' if ranks > 1 else ''}, {form}", f"train checkpoint.asynchronous={value}",
          makes=("run",), ranks=ranks)
      for ranks in (1, 2) for form, value in (("synchronous", "false"), ("asynchronous", "true"))],
    Row("train, 2 ranks, local checkpoints", "train checkpoint.local=disk checkpoint.local_every=1", makes=("run",), ranks=2),
    Row("train, 2 ranks, shard weights", "train parallel.shard=weights batch.micro=2", makes=("run",), ranks=2),
    Row("train, 2 ranks, shard gradients", "train parallel.shard=gradients batch.micro=2", makes=("run",), ranks=2, soak=True),
    Row("train, 4 ranks, shard weights in groups of 2", "train parallel.shard=weights parallel.shard_group=2", makes=("run",),
        ranks=4, soak=True),
    Row("train, 2 ranks, Muon, shard weights", "train parallel.shard=weights optimizer.kind=muon", makes=("run",), ranks=2,
        soak=True),
    Row("restart", "train checkpoint.asynchronous=false", before=TWO_STEPS, makes=("run",)),
    Row("eval", "trireme eval deck.toml --data data/tokens.h5", before=TWO_STEPS),
    Row("tokenize", "trireme tokenize -o out.h5 text", makes=("out.h5",)),
    Row("inspect", "trireme inspect --verify run/checkpoints", before=TWO_STEPS),
    Row("inspect --decode", "trireme inspect --decode data/tokens.h5"),
    Row("export", "trireme export run/checkpoints model", before=TWO_STEPS, makes=("model",)),
    Row("import", "trireme import model deck.toml checkpoint.directory=c",
        before=TWO_STEPS + " && trireme export run/checkpoints model", makes=("c/step_00000000",), refuses=True),
    Row("report", "trireme report run", before=TWO_STEPS, makes=("run/report.html",), tells=True),
    Row("draw", "trireme draw deck.toml --ranks 2 parallel.pipeline=2 -o a.svg", makes=("a.svg",)),
]


def bytes_of(folder, products):
    found = {}
    for product in products:
        path = folder / product
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                found[str(file.relative_to(folder))] = file.read_bytes()
    return found


class Command:
    """A row with its folder, its reference and its calls."""

    def __init__(self, runs, row):
        self.runs, self.row = runs, row
        self.trains = row.makes == ("run",)
        self.line = runs.train(row.ranks, row.line[6:]) if self.trains else row.line
        self.start = runs.copy()
        if row.before:
            runs.must(self.start, row.before)
        folder = runs.copy(self.start)
        log = folder.parent / "log"
        done = runs.run(folder, self.line, self.environment(folder, log))
        if done.code != 0:
            raise SystemExit(f"{row.name}: {done.err}")
        self.out, self.products = self.plain(done.out), bytes_of(folder, row.makes)
        self.numbers = numbers(folder) if self.trains else None
        self.contents = {path.name: content(path) for path in saved(folder / "run/checkpoints")} if self.trains else {}
        words = [line.split(" ", 4) for line in log.read_text().splitlines()]
        last = {}
        for program, rank, call, n, _ in words:
            if program == "trireme":
                last[rank, call] = max(last.get((rank, call), 0), int(n))
        self.calls = [(rank, call, n) for (rank, call), number in sorted(last.items()) for n in range(1, number + 1)]

    def environment(self, folder, log, **fault):
        return {"LD_PRELOAD": str(self.runs.library), "FAULT_PATH": str(folder) + "/", "FAULT_PROGRAM": "trireme",
                "FAULT_LOG": str(log), **{f"FAULT_{key.upper()}": str(value) for key, value in fault.items()}}

    @staticmethod
    def plain(text):
        return re.sub(r"\d+(\.\d+)? (s|MB/s|GB/s|tokens/s)\b|(\d+ms)", "", text)

    def same(self, folder, done):
        """Complaints about a command that has ended well."""
        if not self.trains:
            found = [] if self.products == bytes_of(folder, self.row.makes) else ["a product differs"]
            if not self.row.makes and self.plain(done.out) != self.out:
                found.append("the output differs")
            return found
        found = [] if numbers(folder) == self.numbers else ["numbers of steps differ from the reference's"]
        names = sorted(self.contents)
        have = [path.name for path in saved(folder / "run/checkpoints")]
        if names[-1] not in have:
            found.append(f"{names[-1]} is missing")
        local = "checkpoint.local=" in self.line  # a restart may have copied one of any step to there
        return found + [f"{name} differs" for name in have if not (local and name not in self.contents)
                        and content(folder / "run/checkpoints" / name) != self.contents.get(name)]

    def attempt(self, rank, call, n, error, times):
        """(what happened, complaints)"""
        folder = self.runs.copy(self.start)
        log = folder.parent / "log"
        value = "short" if error == "short" else getattr(errno, error)
        done = self.runs.run(folder, self.line, self.environment(folder, log, call=call, rank=rank, at=n, times=times,
                                                                 errno=value))
        failed = [line.split(" ", 4)[4][:-2] for line in log.read_text().splitlines() if line.endswith(" *")]
        if not failed:
            self.runs.remove(folder)
            return "not reached", []
        found = done.complaints()
        if done.code == 0 and not self.told(folder, value):
            found += self.same(folder, done)
        elif done.code in (1, 2):
            found += unnamed(done, failed)
        if self.trains:
            found += self.runs.verify(folder)
            found += self.lost(folder)
        if done.code != 0 and not (self.row.refuses and not self.same(folder, done)):
            again = self.runs.run(folder, self.line)
            found += [f"the next start: {why}" for why in again.complaints(may_fail=False)]
            if again.code != 0:
                found.append("the next start says: " + again.err.strip())
            else:
                found += [f"after the next start {why}" for why in self.same(folder, again)]
            found += [f"left over: {path.relative_to(folder)}" for path in folder.rglob("*.partial*")]
        if found:
            found.append(f"[{failed[0]}] code {done.code}: {done.err.strip()[-600:]}")
        self.runs.remove(folder)
        return ("continued" if done.code == 0 else "ended with an error"), found

    def told(self, folder, error):
        return self.row.tells and error != "short" and any(os.strerror(error).encode() in data
                                      for data in bytes_of(folder, self.row.makes).values())

    def lost(self, folder):
        """Checkpoints that were there before the command must be there or replaced by newer ones."""
        before = newest(self.start / "run/checkpoints")
        places = [folder / "run/checkpoints", *folder.glob("run/checkpoints/previous-*")]
        after = max(newest(place) for place in places)  # moved aside if none could be read
        return [f"step {before} was there, {after} is the newest"] if after < before else []


def unnamed(done, failed):
    """A complaint if no error names the file of a call that failed, or its folder."""
    for path in failed:
        place = Path(re.sub(r"\.partial(-[\w-]+)?|\.(new|tmp)\b.*$| \(deleted\)$", "", path))
        if any(name and name in done.err for name in (place.name, place.parent.name if place.parent.name != "work" else "")):
            return []
    return ["the error does not name the file"]


def errors_of(call, n):
    errors = ERRORS.get(call, ("EIO",))
    return errors[n % len(errors)], (n // len(errors)) % 2


def sampled(calls, number, seed):
    """Calls in a fixed random order, of which the first `number`; each kind of call is among them as early as it can."""
    order = sorted(calls, key=lambda c: zlib.crc32(f"{seed} {c}".encode()))
    rounds, seen = [], {}
    for call in order:
        seen[call[:2]] = seen.get(call[:2], 0) + 1
        rounds.append((seen[call[:2]], call))
    return [call for _, call in sorted(rounds, key=lambda r: r[0])][:number]


def attempts(runs, options):
    """(row's name, attempt's name, function) of the chosen rows."""
    for row in TABLE:
        if options.only not in row.name or (row.soak and not options.soak):
            continue
        command = Command(runs, row)
        number = options.number or (len(command.calls) if options.soak else 4 if command.trains else 2)
        for rank, call, n in sampled(command.calls, number, options.seed):
            error, good = errors_of(call, n)
            times = 0 if good else 1
            yield (row.name, f"rank {rank}, {call} {n}, {error}, {'for good' if good else 'once'}",
                   lambda c=command, a=(rank, call, n, error, times): c.attempt(*a))
