"""Files of every format are damaged. No command ends by a signal, hangs or shows a library's words. A format with
checksums is refused or read as it was written; other formats are read as what they say."""
import json
import os
import shutil
import struct

from mutations import Checksums, generator, mutated
from runs import numbers

MORE = """tokenizer = "tok/tokenizer.json"
"""
STEP = "run/checkpoints/step_00000004"
INSPECT = f"trireme inspect --verify {STEP}"
EXPORT = f"trireme export {STEP} out"
IMPORT = "trireme import model deck.toml checkpoint.directory=c && trireme export c out"
CONTINUE = "trireme train deck.toml run.steps=6"
NEAR = "run.directory=near checkpoint.local=disk checkpoint.local_every=1 checkpoint.asynchronous=false"
NEAR_RUN = "trireme-0123456789abcdef-1"
REPORT = "trireme report run"
TOKENIZERS = ("llama2", "albert", "bert_uncased", "mixed")  # of tests/golden/tokenizers
MACHINE = "trireme check deck.toml --ranks 2 --machine machine.toml"


class Row:
    """A file, the command that reads it, and what holds if the command accepts it: `exact`: the output, the run's
    numbers and the folder `out` are those of the whole file; `tensors`: the folder `out` has the tensors of the file.
    `seal` makes the checksums right again."""

    def __init__(self, name, file, line, text=True, seal=None, accepted=None, often=True):
        self.name, self.file, self.line, self.text, self.seal = name, file, line, text, seal
        self.accepted, self.often = accepted, often


TABLE = [
    Row("checkpoint: manifest", f"{STEP}/manifest.json", INSPECT, accepted="exact"),
    Row("checkpoint: manifest, resealed", f"{STEP}/manifest.json", f"{INSPECT} && {EXPORT}", seal="seal_manifest"),
    Row("checkpoint: shard", f"{STEP}/shard_000000.h5", EXPORT, text=False, accepted="exact"),
    Row("checkpoint: shard, resealed", f"{STEP}/shard_000000.h5", f"{INSPECT} && {EXPORT}", text=False,
        seal="seal_member"),
    Row("checkpoint: index", f"{STEP}/index.h5", INSPECT, text=False, accepted="exact"),
    Row("checkpoint: index, resealed", f"{STEP}/index.h5", f"{INSPECT} && {EXPORT}", text=False, seal="seal_member"),
    Row("checkpoint: deck", f"{STEP}/deck.toml", INSPECT, accepted="exact"),
    Row("checkpoint: deck, resealed", f"{STEP}/deck.toml", EXPORT, seal="seal_member"),
    Row("checkpoint: `latest`", "run/checkpoints/latest", CONTINUE, accepted="exact", often=False),
    *[Row(f"restart: {name}", f"{STEP}/{name}", CONTINUE, text=name[-3:] != ".h5", accepted="exact", often=False)
      for name in ("manifest.json", "shard_000000.h5", "index.h5", "deck.toml")],
    Row("restart: manifest, resealed", f"{STEP}/manifest.json", CONTINUE, seal="seal_manifest", often=False),
    *[Row(f"local checkpoint: {name}", f"disk/{NEAR_RUN}/step_00000003/{name}", f"{CONTINUE} {NEAR}",
          text=name[-3:] != ".h5", accepted="exact", often=False)
      for name in ("manifest.json", "shard_000000.h5", "deck.toml")],
    Row("local checkpoint: the run's name", "near/checkpoints/attempt", f"{CONTINUE} {NEAR}", accepted="exact", often=False),
    Row("token file", "data/tokens.h5", "trireme inspect --decode data/tokens.h5", text=False, accepted="exact"),
    Row("token file, `eval`", "data/tokens.h5", "trireme eval deck.toml --data data/tokens.h5", text=False,
        accepted="exact", often=False),
    Row("token file, resealed", "data/tokens.h5",
        "trireme inspect --verify data/tokens.h5 && trireme inspect --decode data/tokens.h5", text=False,
        seal="seal_tokens"),
    Row("token file, resealed, training", "data/tokens.h5", CONTINUE, text=False, seal="seal_tokens", often=False),
    Row("token file with a mask", "data/chats.h5", "trireme inspect --decode data/chats.h5", text=False, accepted="exact"),
    Row("token file with a mask, resealed", "data/chats.h5",
        "trireme inspect --verify data/chats.h5 && trireme inspect --decode data/chats.h5", text=False,
        seal="seal_tokens"),
    Row("instruction data", "chats.jsonl", "trireme tokenize -o out.h5 --tokenizer chats.json --chat chatml chats.jsonl && "
        "trireme inspect --decode out.h5"),
    Row("task", "task.jsonl", "trireme eval deck.toml --tasks task.jsonl", often=False),
    Row("Megatron-LM's index", "corpus.idx", "trireme inspect --verify corpus.idx", text=False),
    Row("text, gzip", "text.gz", "trireme tokenize -o out.h5 text.gz", text=False),
    Row("safetensors", "model/model.safetensors", IMPORT, text=False, accepted="tensors"),
    Row("safetensors: header", "model/model.safetensors", IMPORT, seal="header", accepted="tensors"),
    Row("safetensors: index", "shards/model.safetensors.index.json", IMPORT.replace("model", "shards", 1),
        accepted="exact"),
    Row("config.json", "model/config.json", IMPORT),
    Row("tokenizer.json", "tok/tokenizer.json", "trireme tokenize -o out.h5 --tokenizer tok/tokenizer.json text"),
    *[Row(f"tokenizer.json: {kind}", f"{kind}.json", f"trireme tokenize -o out.h5 --tokenizer {kind}.json text && "
          "trireme inspect --decode out.h5") for kind in TOKENIZERS],
    Row("deck", "deck.toml", "trireme check deck.toml --ranks 2"),
    Row("deck, training", "deck.toml", CONTINUE + " model.layers=1 model.hidden=24 model.sequence=29", often=False),
    Row("machine file", "machine.toml", MACHINE),
    Row("program file", "a.program", "trireme check deck.toml --ranks 2 parallel.pipeline=2 parallel.schedule=file "
        "parallel.program=a.program model.layers=2"),
    Row("measured steps", "steps.csv", "trireme predict steps.csv --machine machine.toml"),
    Row("metrics.jsonl", "run/metrics.jsonl", REPORT),
    Row("metrics.jsonl, restart", "run/metrics.jsonl", CONTINUE, often=False),
    Row("events.jsonl", "run/events.jsonl", REPORT),
    Row("events.jsonl, restart", "run/events.jsonl", CONTINUE, accepted="exact", often=False),
    Row("timeline", "run/timeline.jsonl", "trireme draw deck.toml -o a.svg"),
    Row("owner file", "run/owner", CONTINUE, accepted="exact", often=False),
    Row("the run's deck", "run/deck.toml", REPORT),
]


def prepare(runs):
    """A folder with a file of every format."""
    folder = runs.copy()
    deck = (folder / "deck.toml").read_text().replace("[checkpoint]", MORE + "[checkpoint]").replace("= 257", "= 300")
    (folder / "deck.toml").write_text(deck.replace('log_every = 1', 'log_every = 1\ntimeline = true'))
    runs.must(folder, "trireme tokenize -o data/tokens.h5 --tokenizer tok/tokenizer.json --train-bpe 300 "
                      "--document-separator '\\n' text && gzip -k text")
    runs.must(folder, "trireme train deck.toml && trireme export run/checkpoints model && "
                      "trireme export run/checkpoints shards --shard-size 20KB && trireme draw deck.toml --ranks 2 "
                      "parallel.pipeline=2 model.layers=2 --format program -o a.program")
    golden = runs.source / "tests/golden/instructions"
    shutil.copy(golden / "bpe.json", folder / "chats.json")
    chats = (golden / "conversations.jsonl").read_text().splitlines(keepends=True)
    (folder / "chats.jsonl").write_text("".join(chats[:3]) + (golden / "completions.jsonl").read_text())
    runs.must(folder, "trireme tokenize -o data/chats.h5 --tokenizer chats.json --chat chatml chats.jsonl")
    (folder / "task.jsonl").write_text('{"context": "the quick", "choices": ["brown", "red"], "gold": 0}\n' * 2)
    for kind in TOKENIZERS:
        shutil.copy(runs.source / f"tests/golden/tokenizers/{kind}.json", folder)
    machines = runs.source / "inputs/machines"
    shutil.copy(machines / "a100_cluster.toml", folder / "machine.toml")
    table = (runs.source / "tests/bench/paper_table1.csv").read_text().splitlines(keepends=True)
    (folder / "steps.csv").write_text("".join(table[:4]))
    sizes = [7, 9, 5]
    starts = [2 * sum(sizes[:i]) for i in range(3)]
    (folder / "corpus.bin").write_bytes(struct.pack("<21H", *range(21)))
    (folder / "corpus.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ3i3q4q", 1, 8, 3, 4, *sizes, *starts, 0, 1, 2, 3))
    (folder / "run/owner").write_text(dead_owner(runs, folder))
    leave_local_checkpoints(runs, folder)
    return folder


def leave_local_checkpoints(runs, folder):
    """Those of a run that ended at step 4, where it could not save."""
    checkpoints = folder / "near/checkpoints"
    (checkpoints).mkdir(parents=True)
    in_the_way = checkpoints / "step_00000004.partial"
    in_the_way.touch()
    done = runs.run(folder, f"trireme train deck.toml {NEAR}")
    in_the_way.unlink()
    made = list((folder / "disk").glob("trireme-*-1/step_00000003"))
    if done.code != 1 or len(made) != 1:
        raise SystemExit(f"no local checkpoints: {done.code} {done.err}")
    made[0].parent.rename(folder / "disk" / NEAR_RUN)
    (checkpoints / "attempt").write_text("0123456789abcdef 1\n")


def dead_owner(runs, folder):
    """The owner file of a job that was killed."""
    job = runs.start(folder, runs.train(1, "run.directory=other run.steps=1000000"))
    path = folder / "other/owner"
    while not path.exists() or not path.read_bytes():
        if job.process.poll() is not None:
            raise SystemExit("no owner file")
    job.kill()
    content = path.read_text()
    shutil.rmtree(folder / "other")
    return content


def tensors_of(path):
    """{name: (type, shape, bytes)} of a safetensors file; ValueError if it is none."""
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data)[0] if len(data) >= 8 else len(data)
    header = json.loads(data[8:8 + length].decode("utf-8"))
    begin = 8 + length
    return {name: (t["dtype"], t["shape"], data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


class Format:
    def __init__(self, runs, base, row, seed):
        self.runs, self.base, self.row, self.seed = runs, base, row, seed
        self.data = (base / row.file).read_bytes()
        folder = self.copy()
        done = runs.run(folder, row.line)
        if done.code != 0:
            raise SystemExit(f"{row.name}: {row.line}: {done.err}")
        self.reference = self.result(folder, done)
        self.runs.remove(folder)

    def copy(self):
        """Links where the command leaves its inputs alone."""
        folder = self.runs.folder()
        link = shutil.copy2 if "train" in self.row.line else os.link
        shutil.copytree(self.base, folder, copy_function=link, dirs_exist_ok=True)
        return folder

    def result(self, folder, done):
        if "train" in self.row.line:
            return numbers(folder, "near" if NEAR in self.row.line else "run")[-2:]
        if (folder / "out").is_dir():
            return {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
        return done.out

    def change(self, folder, rng):
        """Writes the damaged file; False if nothing has changed."""
        path = folder / self.row.file
        path.unlink()
        if self.row.seal == "header":
            length = struct.unpack_from("<Q", self.data)[0]
            header = mutated(self.data[8:8 + length], rng, True)
            data = struct.pack("<Q", len(header)) + header + self.data[8 + length:]
        elif self.row.seal == "seal_tokens":
            data = self.resealable(rng)
        else:
            data = mutated(self.data, rng, self.row.text)
        path.write_bytes(data)
        if self.row.seal in ("seal_manifest", "seal_member"):
            manifest = folder / STEP / "manifest.json"
            content = manifest.read_bytes()
            manifest.unlink()
            manifest.write_bytes(content)
        if self.row.seal and self.row.seal != "header":
            getattr(self.runs.checksums, self.row.seal)(folder, self.row.file)
        return data != self.data

    def resealable(self, rng):
        """A token file with damage in its header or its datasets."""
        size, tokens, documents = (struct.unpack_from(kind, self.data, at)[0]
                                   for kind, at in (("<I", 20), ("<q", 24), ("<q", 32)))
        at, offsets = struct.unpack_from("<2q", self.data, 56)
        begin, length = rng.choice(((16, 120), (128, 1280), (at, tokens * size), (offsets, (documents + 1) * 8)))
        part = mutated(self.data[begin:begin + length], rng, False)[:length].ljust(length, b"\0")
        return self.data[:begin] + part + self.data[begin + length:]

    def attempt(self, number):
        rng = generator(self.seed, self.row.name, number)
        folder = self.copy()
        if not self.change(folder, rng):
            self.runs.remove(folder)
            return "not reached", []
        done = self.runs.run(folder, self.row.line)
        found = done.complaints()
        if done.code in (1, 2) and not any(name in done.err for name in self.row.file.split("/")[-2:]):
            found.append("the error does not name the file")
        if done.code == 0 and self.row.accepted == "exact" and self.result(folder, done) != self.reference:
            found.append("a wrong number was accepted")
        if done.code == 0 and self.row.accepted == "tensors":
            found += self.other_tensors(folder)
        if found:
            kept = self.runs.keep(folder / self.row.file)
            found.append(f"code {done.code}, {kept}: {done.err.strip()[-600:]}")
        self.runs.remove(folder)
        return ("continued" if done.code == 0 else "ended with an error"), found

    def other_tensors(self, folder):
        try:
            wanted = tensors_of(folder / self.row.file)
        except (ValueError, KeyError, TypeError) as why:
            return [f"accepted, but {why!r}"]
        found = tensors_of(folder / "out/model.safetensors")
        return [f"{name} is not what the file says" for name in found if found[name] != wanted.get(name)]


def attempts(runs, options):
    base = prepare(runs)
    for row in TABLE:
        if options.only not in row.name:
            continue
        one = Format(runs, base, row, options.seed)
        number = (options.number or (300 if row.often else 60)) if options.soak else 4 if row.often else 1
        for i in range(number):
            yield row.name, f"damage {i}", lambda f=one, n=i: f.attempt(n)
