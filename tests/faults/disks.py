"""Disks that are full at every size up to what a command needs: tmpfs, and ext2, which cannot reserve space for a file.
The command ends with one error that names the file, leaves nothing half written, and succeeds when there is room."""
import os
import subprocess

from calls import bytes_of
from runs import newest, numbers

DISK_KIB = 8192
TRAIN = "checkpoint.every=1 checkpoint.directory=disk/c checkpoint.asynchronous="


class Row:
    """A command that writes to the folder `disk`, and its products there; `train` is a run with so many ranks."""

    def __init__(self, name, line, before="", makes="", ranks=0):
        self.name, self.line, self.before, self.makes, self.ranks = name, line, before, makes, ranks


ONE_RUN = "trireme train deck.toml run.steps=2"
TABLE = [
    Row("train, 1 rank, synchronous", TRAIN + "false", ranks=1),
    Row("train, 1 rank, asynchronous", TRAIN + "true", ranks=1),
    Row("train, 2 ranks, asynchronous", TRAIN + "true", ranks=2),
    Row("train, the whole run", "checkpoint.every=1 run.directory=disk/run", ranks=1),
    Row("tokenize", "trireme tokenize -o disk/out.h5 text", makes="out.h5"),
    Row("export", "trireme export run/checkpoints disk/model", before=ONE_RUN, makes="model"),
    Row("import", "trireme import model deck.toml checkpoint.directory=disk/c",
        before=ONE_RUN + " && trireme export run/checkpoints model", makes="c"),
    Row("report", "trireme report run -o disk/report.html", before=ONE_RUN, makes="report.html"),
]
SYSTEMS = ("tmpfs", "ext2")


def quiet(*words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Disk:
    """A small file system; `mounted` is false where this machine or user cannot have one."""

    def __init__(self, folder, system):
        self.path = folder / "disk"
        self.path.mkdir()
        if system == "tmpfs":
            self.mounted = quiet("mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "none", self.path)
        else:
            image = folder / "image"
            self.mounted = quiet("mke2fs", "-q", "-F", "-m", "0", "-b", "1024", image, str(DISK_KIB)) and \
                quiet("mount", "-o", "loop", image, self.path)

    def fill(self, free_kib):
        status = os.statvfs(self.path)
        ballast = status.f_bavail * status.f_frsize // 1024 - free_kib
        try:
            (self.path / "ballast").write_bytes(bytes(1024 * max(ballast, 0)))
        except OSError:  # ext2 needs some blocks for the file's map: full is what is wanted
            pass

    def empty(self):
        (self.path / "ballast").unlink()

    def close(self):
        if self.mounted:
            quiet("umount", "-l", self.path)


class Command:
    def __init__(self, runs, row, system):
        self.runs, self.row, self.system = runs, row, system
        self.line = runs.train(row.ranks, row.line) if row.ranks else row.line
        self.run_folder = "disk/run" if "disk/run" in row.line else "run"
        self.start = runs.copy()
        if row.before:
            runs.must(self.start, row.before)
        folder = runs.copy(self.start)
        (folder / "disk").mkdir()
        runs.must(folder, self.line)
        self.numbers = numbers(folder, self.run_folder) if row.ranks else None
        self.products = bytes_of(folder, [f"disk/{row.makes}"]) if row.makes else {}
        files = [path for path in (folder / "disk").rglob("*") if path.is_file()]
        self.kib = sum((path.stat().st_size + 4095) // 4096 * 4 for path in files) + 2048  # and what an index claims
        runs.remove(folder)

    def same(self, folder):
        if self.row.ranks:
            return [] if numbers(folder, self.run_folder) == self.numbers else ["numbers differ from the reference's"]
        return [] if bytes_of(folder, [f"disk/{self.row.makes}"]) == self.products else ["the product differs"]

    def attempt(self, free_kib):
        folder = self.runs.copy(self.start)
        disk = Disk(folder, self.system)
        try:
            if not disk.mounted:
                return "skipped: no file system can be mounted here", []
            disk.fill(free_kib)
            return self.on(disk, folder)
        finally:
            disk.close()
            self.runs.remove(folder)

    def on(self, disk, folder):
        done = self.runs.run(folder, self.line)
        found = done.complaints()
        checkpoints = "disk/run/checkpoints" if self.run_folder != "run" else "disk/c"
        if done.code == 0:
            found += self.same(folder)
        elif "disk/" not in done.err or ("No space" not in done.err and "full" not in done.err):
            found.append("the error does not name the file and the full disk")
        if self.row.ranks:
            found += self.runs.verify(folder, checkpoints)
        if done.code != 0:
            before = newest(folder / checkpoints)
            disk.empty()
            again = self.runs.run(folder, self.line)
            found += [f"with room: {why}" for why in again.complaints(may_fail=False)]
            if again.code == 0:
                found += [f"with room: {why}" for why in self.same(folder)]
            if self.row.ranks and newest(folder / checkpoints) < before:
                found.append(f"step {before} was there")
            found += [f"left over: {path.name}" for path in disk.path.rglob("*.partial*")]
        if found:
            found.append(f"code {done.code}: {done.err.strip()[-500:]}")
        return ("continued" if done.code == 0 else "ended with an error"), found


def attempts(runs, options):
    for row in TABLE:
        if options.only not in row.name:
            continue
        for system in SYSTEMS:
            command = Command(runs, row, system)
            number = options.number or (24 if options.soak else 1)
            for i in range(number):
                free = command.kib * (i + (0.5 if number == 1 else 0)) / max(number - 1, 1)
                free = int(free * 0.7 if number == 1 else free)
                yield (f"{system}: {row.name}", f"{free} KiB free",
                       lambda c=command, f=free: c.attempt(f))
