"""One bit of one rank's memory is flipped in the middle of an audited step (libflip_bit.so, a tool of Kokkos). Either
the numbers of the run are those without the fault, or it ends with code 76, has named the rank and saved nothing of the
step; the same command then continues with the reference's numbers."""
import json
import socket

from mutations import generator
from runs import newest, numbers

STEPS = 6
WRONG_NUMBERS = 76
ARENAS = ("gradients", "saved activations", "weights", "scratch")


class Row:
    def __init__(self, name, ranks, arguments):
        self.name, self.ranks, self.arguments = name, ranks, arguments


TABLE = [Row("1 rank", 1, ""), Row("data 2", 2, ""), Row("data 2, shard optimizer", 2, "parallel.shard=optimizer"),
         Row("tensor 2", 2, "parallel.tensor=2"), Row("pipeline 2", 2, "parallel.pipeline=2 parallel.schedule=zb-h1"),
         Row("pipeline 2, shared vocabulary", 2, "parallel.pipeline=2 parallel.vocabulary=pipeline model.layers=2"),
         Row("data 3", 3, "batch.global=6"), Row("tensor 2 · data 2", 4, "parallel.tensor=2")]


class Flip:
    def __init__(self, runs, row, reference, rng, arena):
        self.runs, self.row, self.reference, self.rng, self.arena = runs, row, reference, rng, arena

    def attempt(self):
        rng, folder = self.rng, self.runs.copy()
        every, step, action = rng.choice((1, 2)), rng.choice((2, 4)), rng.choice(("stop", "repair"))
        rank = rng.randrange(self.row.ranks)
        library = self.runs.library.parent / "libflip_bit.so"
        # Each pass has at least four of these launches.
        environment = {"KOKKOS_TOOLS_LIBS": str(library), "KOKKOS_PROFILE_LIBRARY": str(library),
                       "FLIP_RANK": str(rank), "FLIP_STEP": str(step), "FLIP_ARENA": self.arena,
                       "FLIP_KERNEL": "kernels/rms_norm_backward_input", "FLIP_LAUNCH": str(rng.randrange(8)),
                       "FLIP_SHARE": f"{rng.random() * 0.98:.4f}"}
        line = self.runs.train(self.row.ranks, f"run.steps={STEPS} checkpoint.every=1 run.audit_every={every} run.audit={action} "
                               + self.row.arguments)
        done = self.runs.run(folder, line, environment)
        if "flip_bit: done" not in done.err:
            happened, found = "not reached", done.complaints(may_fail=False)
        elif done.code == WRONG_NUMBERS:
            happened, found = "survived", self.named(folder, rank, step)
            again = self.runs.run(folder, line)
            found += again.complaints(may_fail=False)
        else:
            repaired = (folder / "run/suspect_hosts").exists()
            happened, found = "continued", done.complaints(may_fail=False)
            found += self.named(folder, rank, step) if repaired else []
        if numbers(folder) != numbers(self.reference):
            found.append("numbers of steps differ from the reference's")
        self.runs.remove(folder)
        what = f"{line} {' '.join(f'{k}={v!r}' for k, v in environment.items())}: "
        return happened, [what + why for why in found]

    def named(self, folder, rank, step):
        """Complaints about what the run has said of its fault."""
        events = [json.loads(line) for line in (folder / "run/events.jsonl").read_text().splitlines()]
        audits = [event for event in events if event["event"] == "audit"]
        listed = (folder / "run/suspect_hosts").read_text().splitlines()
        found = []
        if rank not in [event["rank"] for event in audits] or any(event["rank"] != rank and event["certain"] for event in audits):
            found.append(f"named {audits}")
        if any(not line.startswith(socket.gethostname()) for line in listed) or len(listed) != len(audits):
            found.append(f"listed {listed}")
        if not all(event["repaired"] for event in audits) and newest(folder / "run/checkpoints") >= step + 1:
            found.append("a checkpoint of the wrong step was saved")
        return found


def attempts(runs, options):
    for row in TABLE:
        if options.only not in row.name or (not options.soak and row.name not in ("1 rank", "data 2", "tensor 2")):
            continue
        reference = runs.copy()
        runs.must(reference, runs.train(row.ranks, f"run.steps={STEPS} checkpoint.every=1 {row.arguments}"))
        for i in range(options.number or (60 if options.soak else 4)):
            rng = generator(options.seed, row.name, i)
            yield (f"{row.name}", f"flip {i}",
                   lambda r=row, f=reference, g=rng, a=ARENAS[i % len(ARENAS)]: Flip(runs, r, f, g, a).attempt())
