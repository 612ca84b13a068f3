#!/usr/bin/env python3
"""Jobs that tools/job prints, run by a real Slurm: stopped by its signal and put back into the queue, cut by the failure
of a node, cancelled. Losses and gradient norms equal those of a run that nothing stopped, bit for bit; of a job with a
range of nodes, whose parts ran on 2, 4 and 3 ranks, to rounding.

    test_slurm.py --bin FOLDER [--mpiexec mpiexec]

Ends with 77 where there is no Slurm or no right to start one.
"""
import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import cluster  # noqa: E402
from run_files import events, metrics, numbers  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
STEPS = 200
DECK = f"""[run]
directory = "run"
steps = {STEPS}
log_every = 1
[model]
layers = 2
hidden = 48
heads = 3
sequence = 61
vocabulary = 257
dropout = 0.1
[batch]
global = 8
micro = 2
[optimizer]
learning_rate = 3e-3
[data]
train = "tokens.h5"
[checkpoint]
every = 25
"""
options = None


class Runs(unittest.TestCase):
    """Runs of DECK as jobs of a cluster of their own."""
    NODES = 2
    DECK = DECK
    CLUSTER = {}

    @classmethod
    def setUpClass(cls):
        cls.slurm = cls.enterClassContext(cluster.Cluster(cls.NODES, **cls.CLUSTER))
        cls.text = cls.slurm.folder / "text"
        cls.text.write_text("".join(f"the quick brown fox {i * i % 97} jumps\n" for i in range(800)))

    @classmethod
    def reference(cls, ranks):
        """What a run has written that nothing stopped."""
        folder = cls.slurm.folder / "reference"
        if folder.exists():
            return folder
        folder = cls.prepared("reference")
        cls.slurm.run(options.mpiexec, "-n", str(ranks), "trireme", "train", "deck.toml", cwd=folder)
        return folder

    @classmethod
    def prepared(cls, name):
        folder = cls.slurm.folder / name
        folder.mkdir()
        (folder / "deck.toml").write_text(cls.DECK)
        cls.slurm.run("trireme", "tokenize", "-o", "tokens.h5", str(cls.text), cwd=folder)
        return folder

    def setUp(self):
        self.folder = self.prepared(self.id().rpartition(".")[2])
        self.number = None

    def tearDown(self):
        if self.number is None:
            return
        subprocess.run(["scancel", "--quiet", "--signal=KILL", "--full", self.number], env=self.slurm.environment)
        subprocess.run(["scancel", "--quiet", self.number], env=self.slurm.environment)
        self.until(lambda: not self.processes("trireme-engine") and self.state() not in ("RUNNING", "COMPLETING"), 60,
                    "the job is gone")

    # What a user does

    def print_script(self, *arguments, nodes="2"):
        return self.slurm.run(str(ROOT / "tools/job"), "deck.toml", "--site", "generic", "--nodes", nodes,
                              "--ranks-per-node", "1", "-o", "deck.job", *arguments, cwd=self.folder)

    def submit(self):
        self.number = self.slurm.run("sbatch", "--parsable", "deck.job", cwd=self.folder).strip()

    def state(self):
        return self.slurm.job(self.number)["JobState"]

    def output(self):
        files = sorted(self.folder.glob("deck-*.out"))
        return "".join(f"== {path.name}\n{path.read_text(errors='replace')}" for path in files)

    # What is seen from outside

    def until(self, condition, seconds, what):
        """The seconds are those of a quiet machine: four clusters and other tests may share two cores."""
        try:
            self.slurm.until(condition, 4 * seconds, what)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.output()}") from None

    def processes(self, name):
        """This job's processes of that name."""
        found = []
        for pid in cluster.processes_of(self.slurm.folder):
            try:
                if (Path(f"/proc/{pid}/comm").read_text().strip() == name
                        and os.readlink(f"/proc/{pid}/cwd") == str(self.folder)):
                    found.append(pid)
            except OSError:
                pass
        return found

    def until_step(self, step):
        self.until(lambda: len(metrics(self.folder)) >= step, 60, f"step {step} is done")

    def until_checkpoint(self):
        """Checkpoints are written beside the following steps."""
        self.until(lambda: (self.folder / "run/checkpoints/latest").exists(), 60, "a checkpoint is complete")

    def hold(self, number=2):
        """Stops the ranks where they are, so that the job lasts as long as the test needs and takes no time of a core."""
        ranks = self.processes("trireme-engine")
        self.assertEqual(len(ranks), number)
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        self.until(lambda: all(self.status(pid)["State"].startswith("T") for pid in ranks), 10, "the ranks stand still")
        return ranks

    @staticmethod
    def status(pid):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}

    @staticmethod
    def go_on(ranks):
        for pid in ranks:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def signalled(self, pid, number):
        """Whether a stopped process has been sent a signal; some versions of Slurm send SIGCONT with it."""
        try:
            status = self.status(pid)
        except OSError:
            return True
        waits = any(int(status[key], 16) >> (number - 1) & 1 for key in ("SigPnd", "ShdPnd"))
        return waits or not status["State"].startswith("T")

    def expect_completed(self, restarts):
        self.until(lambda: self.state() in ENDED, 90, "the job has ended")
        job = self.slurm.job(self.number)
        self.assertEqual((job["JobState"], job["ExitCode"], job["Restarts"]), ("COMPLETED", "0:0", str(restarts)),
                         self.output())


class Jobs(Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expected = numbers(cls.reference(2))
        assert len(cls.expected) == STEPS, len(cls.expected)

    def expect_finished(self, restarts):
        self.expect_completed(restarts)
        self.assertEqual(numbers(self.folder), self.expected)
        latest = (self.folder / "run/checkpoints/latest").read_text().strip()
        self.assertEqual(latest, f"step_{STEPS:08}")

    def test_the_time_limit_splits_a_run(self):
        self.print_script("--time", "00:01:00", "--lead", "20")
        self.submit()
        self.until_step(10)
        ranks = self.hold()
        # Slurm looks at time limits every 30 s, and sends the signal up to that much early.
        self.until(lambda: all(self.signalled(pid, signal.SIGUSR1) for pid in ranks), 75, "Slurm sends SIGUSR1 to all ranks")
        self.go_on(ranks)
        self.expect_finished(1)
        said = self.output()
        self.assertEqual(said.count("Exited with exit code 75"), 2, said)  # srun, of each rank
        stop, = events(self.folder, "stop")
        self.assertEqual((stop["cause"], stop["exit_code"]), ("signal", 75))
        self.assertLess(stop["step"], STEPS)
        self.assertEqual([start["job"] for start in events(self.folder, "start")], [self.number] * 2)

    def test_a_signal_saves_and_the_run_continues(self):
        self.print_script("--time", "00:10:00")
        self.submit()
        self.until_step(5)
        self.slurm.run("scancel", "--full", "--signal=USR1", self.number)  # also the script; ElasticJobs signals the steps
        self.expect_finished(1)
        self.assertEqual([stop["cause"] for stop in events(self.folder, "stop")], ["signal"], self.output())

    def test_a_failed_node_requeues_the_job(self):
        self.print_script("--time", "00:10:00")
        self.submit()
        self.until_step(30)
        self.until_checkpoint()
        self.hold()
        self.slurm.fail_node("node1")
        self.until(lambda: self.slurm.states()["node1"].startswith("down"), 90, "Slurm finds that the node is down")
        self.until(lambda: self.state() == "PENDING", 60, "the job waits for nodes")
        self.assertEqual(self.processes("trireme-engine"), [], "a rank outlived its job")
        self.slurm.start_node("node1")
        self.expect_finished(1)
        self.assertNotIn("signal", [stop["cause"] for stop in events(self.folder, "stop")], self.output())
        self.assertEqual(len(events(self.folder, "start")), 2)

    def test_a_cancelled_job_is_saved_and_continues_after_resubmission(self):
        self.print_script("--time", "00:10:00", "--retries", "1")
        self.submit()
        self.until_step(10)
        self.slurm.run("scancel", self.number)
        self.until(lambda: self.state() == "CANCELLED" and not self.processes("trireme-engine"), 60,
                    "the job is cancelled")
        done = len(metrics(self.folder))
        self.assertLess(done, STEPS)
        latest = (self.folder / "run/checkpoints/latest").read_text().strip()
        self.assertEqual(latest, f"step_{done:08}")
        time.sleep(8)  # longer than a job that is put back waits
        self.assertEqual(self.state(), "CANCELLED")
        self.assertNotIn("Submitted", self.output(), "a cancelled job is not tried again")
        self.submit()
        self.expect_finished(0)

    def test_a_failure_is_not_repeated(self):
        self.print_script("--time", "00:10:00")
        (self.folder / "tokens.h5").write_bytes(b"not a token file")
        self.submit()
        self.until(lambda: self.state() in ENDED, 60, "the job has ended")
        job = self.slurm.job(self.number)
        self.assertEqual((job["JobState"], job["Restarts"]), ("FAILED", "0"), self.output())
        self.assertEqual(job["ExitCode"], "2:0", self.output())
        self.assertEqual(self.output().count("trireme: error"), 1, self.output())


ELASTIC_STEPS = 60


class AuditedJobs(Runs):
    NODES = 3

    def test_a_dead_rank_is_retried_without_its_host(self):
        self.print_script("--time", "00:10:00", "--retries", "1", "run.watchdog=00:01:00")
        self.submit()
        first = self.number
        self.until_step(30)
        self.until_checkpoint()
        victim, = (pid for pid in self.processes("trireme-engine")
                   if b"SLURMD_NODENAME=node1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        os.kill(victim, signal.SIGKILL)
        self.until(lambda: "Submitted batch job" in self.output(), 90, "the job submits itself again")
        self.number = self.output().partition("Submitted batch job ")[2].split()[0]
        self.expect_completed(0)
        self.assertIn("retry 1 of 1 without node1", self.output())
        self.assertEqual(self.slurm.job(first)["JobState"], "FAILED", self.output())
        self.assertEqual(self.slurm.job(self.number)["ExcNodeList"], "node1")
        self.assertEqual(numbers(self.folder), numbers(self.reference(2)))

    def test_tasks_of_a_sweep_have_their_own_runs(self):
        said = self.print_script("--time", "00:10:00", "--sweep", "optimizer.learning_rate=3e-3,1e-3", "run.steps=8", nodes="1")
        self.number = self.slurm.run("sbatch", "--parsable", "deck.job", cwd=self.folder).strip()
        runs = [self.folder / f"run/task_{task}_learning_rate_{rate}" for task, rate in enumerate(("3e-3", "1e-3"))]
        self.until(lambda: all((run / "metrics.jsonl").exists() and len((run / "metrics.jsonl").read_text().splitlines()) == 8
                               for run in runs), 90, "both tasks have trained")
        self.until(lambda: not self.processes("trireme-engine"), 60, "both tasks have ended")
        self.slurm.run(*shlex.split(said.splitlines()[1]), cwd=self.folder)
        page = (self.folder / "deck.html").read_text()
        self.assertIn("task_1_learning_rate_1e-3", page)
        self.assertIn("learning_rate", page)

    def test_a_host_with_wrong_results_is_excluded(self):
        """Rank 1, on node1, has a wrong gradient in its first job."""
        library = options.bin.resolve().parent / "tests/faults/libflip_bit.so"
        fault = {"KOKKOS_TOOLS_LIBS": library, "KOKKOS_PROFILE_LIBRARY": library, "FLIP_RANK": 1, "FLIP_STEP": 40,
                 "FLIP_KERNEL": "kernels/layer_norm_backward_input", "FLIP_LAUNCH": 9, "FLIP_ARENA": "gradients", "FLIP_SHARE": 0.5}
        exports = " ".join(f"{name}={value}" for name, value in fault.items())
        self.print_script("--time", "00:10:00", "--setup", f"export {exports}", "--setup",
                          "[ ! -e run/suspect_hosts ] || unset KOKKOS_TOOLS_LIBS KOKKOS_PROFILE_LIBRARY", "run.audit_every=20")
        self.submit()
        first = self.number
        self.until(lambda: "Submitted batch job" in self.output(), 60, "the job submits itself again")
        self.number = self.output().partition("Submitted batch job ")[2].split()[0]
        self.expect_completed(0)
        self.assertNotEqual(self.number, first)
        self.assertEqual(self.slurm.job(first)["ExitCode"], "76:0", self.output())
        self.assertEqual(self.slurm.job(self.number)["ExcNodeList"], "node1")
        self.assertEqual([ranks["rank"] for ranks in events(self.folder, "audit")], [1])
        self.assertEqual((self.folder / "run/suspect_hosts").read_text().split()[0], "node1")
        self.assertEqual([(stop["cause"], stop["step"]) for stop in events(self.folder, "stop")], [("audit", 39)])
        self.assertEqual(numbers(self.folder), numbers(self.reference(2)))


@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "two ranks on one node need two cores")
class BoundJobs(Runs):
    """--cores: ranks on cores of their own."""
    NODES = 1
    CLUSTER = {"cpus": 2, "task": "affinity"}

    def test_each_rank_has_a_core_of_its_own(self):
        self.print_script("--time", "00:10:00", "--no-requeue", "--cores", "2", "--ranks-per-node", "2", nodes="1")
        self.submit()
        self.until_step(2)
        ranks = self.hold()
        cores = sorted(self.status(pid)["Cpus_allowed_list"] for pid in ranks)
        self.go_on(ranks)
        self.expect_completed(0)
        self.assertEqual(len(set(cores)), 2, cores)
        self.assertTrue(all(each.isdigit() for each in cores), cores)


class ElasticJobs(Runs):
    """--nodes 2-4 and [parallel] layout = "auto": 12 samples for 2, 4 and 3 ranks."""
    NODES = 4
    DECK = (DECK.replace(f"steps = {STEPS}", f"steps = {ELASTIC_STEPS}").replace("heads = 3", "heads = 4")
            .replace("global = 8\nmicro = 2\n", "global = 12\n")
            + '[parallel]\nlayout = "auto"\n[precision]\ncompute = "fp64"\n')

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expected = metrics(cls.reference(1))
        assert len(cls.expected) == ELASTIC_STEPS, len(cls.expected)

    def update(self, nodes, *state):
        self.slurm.run("scontrol", "update", f"NodeName={nodes}", *state)

    def next_part(self, ranks, change):
        """Lets a part of so many ranks take a few steps, changes the nodes, and has the job put back."""
        done = len(metrics(self.folder))
        self.until(lambda: len(events(self.folder, "training")) == self.parts + 1, 60, f"part {self.parts + 1} trains")
        self.parts += 1
        self.until_step(done + 3)
        held = self.hold(ranks)
        change()
        self.slurm.run("scancel", "--signal=USR1", self.number)
        self.go_on(held)
        self.until(lambda: len(events(self.folder, "stop")) == self.parts, 60, f"part {self.parts} stops")

    def test_each_part_runs_on_its_allocated_nodes(self):
        self.parts = 0
        self.print_script("--time", "00:10:00", nodes="2-4")
        self.update("node[2-3]", "State=DRAIN", "Reason=test")
        self.submit()
        self.until(lambda: (self.folder / "run/events.jsonl").exists(), 60, "the first part starts")
        self.next_part(2, lambda: self.update("node[2-3]", "State=RESUME"))
        self.next_part(4, lambda: self.update("node1", "State=DRAIN", "Reason=test"))
        self.expect_completed(2)
        self.assertEqual([start["ranks"] for start in events(self.folder, "start")], [2, 4, 3], self.output())
        layouts = [layout["data"] * layout["pipeline"] * layout["tensor"] for layout in events(self.folder, "layout")]
        self.assertEqual(layouts, [2, 4, 3])
        self.assertEqual([stop["cause"] for stop in events(self.folder, "stop")], ["signal"] * 2)
        found = metrics(self.folder)
        self.assertEqual([line["step"] for line in found], list(range(1, ELASTIC_STEPS + 1)))
        for line, expected in zip(found, self.expected):
            self.assertEqual(line["tokens"], expected["tokens"])
            for key in ("loss", "gradient_norm"):
                self.assertLessEqual(abs(line[key] - expected[key]), 1e-10 * expected[key], f"{key} of {line['step']}")


LOST_STEPS = 400
LOCAL_EVERY = 5


class LostNodes(Runs):
    """--spares 1: one node is lost, then another one. Nodes are told apart by Slurm's names: they share a host."""
    NODES = 4
    DECK = (ElasticJobs.DECK.replace(f"steps = {ELASTIC_STEPS}", f"steps = {LOST_STEPS}")
            .replace("every = 25", f'every = 0\nlocal = "disk/%node%"\nlocal_every = {LOCAL_EVERY}'))
    LAUNCH = "srun --mpi=pmi2 --kill-on-bad-exit=0 --nodes={nodes} --ntasks={ranks} sh named"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expected = metrics(cls.reference(1))

    def lose(self, node, ranks):
        """(seconds until the next step, steps lost)"""
        self.until_step(len(metrics(self.folder)) + 4 * LOCAL_EVERY)
        held = self.hold(ranks)
        parts = len(events(self.folder, "training"))
        last = metrics(self.folder)[-1]["step"]
        begin = time.monotonic()
        self.slurm.fail_node(node)
        shutil.rmtree(self.folder / "disk" / node)
        self.go_on(held)
        self.until(lambda: len(events(self.folder, "training")) > parts, 180, "the run continues")
        restarts = events(self.folder, "restart")
        self.assertTrue(restarts, self.output())
        restored = restarts[-1]["step"]
        self.until(lambda: metrics(self.folder)[-1]["step"] > restored, 60, "a step")
        return time.monotonic() - begin, last - restored

    def test_a_run_continues_on_a_spare_node_and_on_the_rest(self):
        self.print_script("--time", "00:10:00", "--spares", "1", "--launch", self.LAUNCH, nodes="3")
        (self.folder / "named").write_text('TRIREME_NODE_NAME=$SLURMD_NODENAME exec "$@"\n')
        self.submit()
        self.until(lambda: (self.folder / "run/events.jsonl").exists(), 60, "the run starts")
        figures = [self.lose("node2", 3), self.lose("node1", 3)]
        print("seconds to the next step, steps lost:", figures)
        print("\n".join(line for line in self.output().splitlines() if line.startswith("job: ")))
        self.expect_completed(0)
        self.assertEqual([start["ranks"] for start in events(self.folder, "start")], [3, 3, 2], self.output())
        for _, lost in figures:  # the write in flight may not have ended
            self.assertLessEqual(lost, 2 * LOCAL_EVERY, self.output())
        found = metrics(self.folder)
        self.assertEqual([line["step"] for line in found], list(range(1, LOST_STEPS + 1)))
        for line, expected in zip(found, self.expected):
            for key in ("loss", "gradient_norm"):
                self.assertLessEqual(abs(line[key] - expected[key]), 1e-9 * expected[key], f"{key} of {line['step']}")


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=Path)
    parser.add_argument("--mpiexec", default="mpiexec")
    options, rest = parser.parse_known_args()
    why_not = cluster.missing()
    if why_not:
        print(f"skipped: {why_not}")
        return SKIPPED
    os.environ["PATH"] = f"{options.bin.resolve()}:{os.environ['PATH']}"
    return 0 if unittest.main(argv=[sys.argv[0], *rest], verbosity=2, exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
