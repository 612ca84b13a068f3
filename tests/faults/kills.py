"""Chains of jobs whose processes are all killed at once, at any time or while a checkpoint is written. Each job of a
chain has another pipeline, schedule and form of checkpoints, and other things that replicas divide. The last one ends; its
numbers are those of an uninterrupted run."""
import json
import re
import time

from mutations import generator
from runs import newest, numbers

STEPS = 60
SHARDS = ("none", "optimizer", "gradients", "weights")
MODEL = f"model.layers=4 run.steps={STEPS}"


class Row:
    """Sizes that decide the bits; pipelines, the other schedules than 2bw, and what replicas divide do not. With `shard`,
    every other job divides that, within groups of `group` replicas, and the jobs between them have another `shard` and
    pipeline."""

    def __init__(self, tensor, data, pipelines, local=False, delayed=False, keys="", shard="", group=0, servers=0,
                 cheap=False):
        self.tensor, self.data, self.pipelines, self.local, self.delayed = tensor, data, pipelines, local, delayed
        self.shard, self.group, self.cheap = shard, group, cheap or tensor * data == 1
        self.servers = servers
        strategy = f" parallel.strategy=server parallel.servers={servers}" if servers else ""
        self.model = f"{MODEL}{strategy} {keys}".strip()
        self.name = (f"chains, tensor {tensor} · data {data}{', local checkpoints' if local else ''}"
                     f"{', 2bw' if delayed else ''}{', ' + keys.split()[0] if keys else ''}"
                     f"{f', shard {shard}' if shard else ''}{f' in groups of {group}' if group else ''}"
                     f"{f', servers {servers}' if servers else ''}")

    def schedules(self, pipeline):
        if self.delayed:
            return ("2bw",)
        return ("gpipe", "1f1b", "zb-h1") if pipeline > 1 else ("1f1b",)

    def division(self, number, rng):
        """The pipeline, `shard` and group of a chain's job."""
        if self.delayed or self.servers:
            return rng.choice(self.pipelines), "none", 0
        if not self.shard:
            return rng.choice(self.pipelines), rng.choice(SHARDS), 0
        if number % 2 == 0:  # gradients are divided on one pipeline rank only
            return self.pipelines[0], self.shard, self.group
        others = [shard for shard in SHARDS if shard != self.shard]
        return self.pipelines[-1], rng.choice(others), rng.choice((0, self.group))


TABLE = [Row(1, 1, (1, 2, 4)), Row(2, 1, (1, 2)), Row(1, 2, (1, 2)), Row(2, 2, (1,)), Row(1, 1, (1, 2), local=True),
         Row(1, 1, (1, 2), delayed=True), Row(1, 2, (1, 2), shard="weights", cheap=True),
         Row(1, 2, (1, 2), keys="batch.micro=2", shard="gradients"), Row(1, 2, (1, 2), keys="batch.micro=2", shard="weights"),
         Row(1, 4, (1,), shard="weights", group=2), Row(1, 2, (1, 2), keys="optimizer.kind=muon"),
         Row(1, 2, (1, 2), keys="optimizer.kind=muon", shard="weights"),
         Row(1, 2, (1, 2), keys="experts.number=5 experts.feed_forward=16 parallel.expert=2"),
         Row(1, 4, (1,), keys="parallel.expert=2 experts.number=5 optimizer.kind=muon", shard="weights", group=2),
         Row(1, 2, (1, 2), keys="local.workers=2 local.inner_steps=7 local.fragments=2 local.delay=2", cheap=True),
         Row(1, 2, (1, 2), keys="local.workers=4 local.inner_steps=5 local.differences=bf16"),
         Row(1, 4, (1,), keys="local.workers=2 local.inner_steps=5", shard="weights"),
         Row(1, 2, (1, 2), servers=1, cheap=True), Row(1, 2, (1,), servers=2),
         Row(2, 2, (1,), keys="adapter.kind=dora adapter.targets=attention.query,feed_forward.down")]
KILLS = 4  # of a chain


def events(folder):
    path = folder / "run/events.jsonl"
    lines = path.read_text(errors="replace").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


class Chain:
    def __init__(self, runs, row, reference, rng):
        self.runs, self.row, self.reference, self.rng = runs, row, reference, rng
        self.folder = runs.copy()
        self.checkpoints = self.folder / "run/checkpoints"
        self.promised = 0  # the step from which the next job continues, or a later one
        self.jobs = 0

    def job(self):
        """A layout, an interval and whether writes are asynchronous."""
        rng = self.rng
        pipeline, shard, group = self.row.division(self.jobs, rng)
        self.jobs += 1
        every, later = rng.choice((1, 2, 3, 5)), rng.random() < 0.5
        local = ""
        if self.row.local:  # the interval is that of local checkpoints
            local = f" checkpoint.local=disk checkpoint.local_every={every}"
        schedule = rng.choice(self.row.schedules(pipeline))
        line = self.runs.train(
            pipeline * self.row.tensor * (self.row.data + self.row.servers),
            f"{self.row.model} parallel.tensor={self.row.tensor} parallel.pipeline={pipeline} parallel.schedule={schedule} "
            f"parallel.shard={shard} parallel.shard_group={group} "
            f"checkpoint.every={rng.choice((0, 20)) if local else every} checkpoint.keep={rng.choice((0, 1, 3))} "
            f"checkpoint.asynchronous={str(later).lower()}{local}")
        return line, every, later

    def wait(self, job):
        """Until any time, or until a checkpoint is being written and then a moment."""
        if self.rng.random() < 0.4:
            time.sleep(self.rng.uniform(0, 2.5))
            return
        seen, wanted = set(), self.rng.randint(1, 4)
        while job.process.poll() is None and len(seen) < wanted:
            seen.update(path.name for path in self.checkpoints.glob("step_*.partial"))
            time.sleep(0.001)
        time.sleep(self.rng.uniform(0, 0.03))

    def kill_one(self):
        before = newest(self.checkpoints)
        line, every, later = self.job()
        started = len(events(self.folder)) if self.checkpoints.exists() else 0
        job = self.runs.start(self.folder, line)
        self.wait(job)
        ended = job.process.poll()
        job.kill()
        result = job.wait()
        found = [] if ended in (None, 0) else [f"the job ended itself: {result.code} {result.err.strip()[-500:]}"]
        now = newest(self.checkpoints)
        mine = events(self.folder)[started:]
        trained = any(event["event"] == "training" for event in mine)  # before, the metrics are a former job's
        logged = last_logged(self.folder) if trained else 0
        due = min(logged, (logged - 1) // every * every - (every if later else 0))
        restarts = [event["step"] for event in mine if event["event"] == "restart"]
        if now < before or (logged > before and not self.row.local and now < due):
            found.append(f"the newest checkpoint is of step {now}; it was {before}, and step {logged} is logged")
        if restarts and (restarts[0] < self.promised if self.row.local else restarts[0] != before):
            found.append(f"restarted from step {restarts[0]}, not from {max(before, self.promised)}")
        self.promised = max(self.promised, now, due if self.row.local and logged > before else 0)
        found += self.runs.verify(self.folder)
        return [f"{line}: {why}" for why in found]

    def attempt(self):
        found = []
        for _ in range(KILLS):
            found += self.kill_one()
        done = self.runs.run(self.folder, self.job()[0])
        found += done.complaints(may_fail=False)
        if done.code == 0:
            if numbers(self.folder) != numbers(self.reference):
                found.append("numbers of steps differ from the uninterrupted run's")
            diff = self.runs.run(self.folder, f"trireme inspect --diff run/checkpoints {self.reference}/run/checkpoints")
            equal = re.search(r"\bequal\s+([\d,]+) of ([\d,]+)", diff.out)
            if not equal or equal.group(1) != equal.group(2):
                found.append("the last checkpoint differs: " + diff.out[-300:] + diff.err)
            found += [f"left over: {path.name}" for path in self.checkpoints.glob("*.partial*")]
        else:
            found.append(done.err[-500:])
        self.runs.remove(self.folder)
        return "continued", found


def last_logged(folder):
    """The step of the last whole line: a kill may cut one."""
    path = folder / "run/metrics.jsonl"
    lines = path.read_text(errors="replace").split("\n")[:-1] if path.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def attempts(runs, options):
    for row in TABLE:
        if options.only not in row.name or not (options.soak or row.cheap):
            continue
        reference = runs.copy()
        runs.must(reference, runs.train(row.tensor * (row.data + row.servers), f"{row.model} parallel.tensor={row.tensor} "
                                                          f"parallel.schedule={row.schedules(1)[0]}"))
        for i in range(options.number or (25 if options.soak else 1)):
            rng = generator(options.seed, row.name, i)
            yield row.name, f"chain {i}", lambda r=row, f=reference, g=rng: Chain(runs, r, f, g).attempt()
