"""Tests of `tools/job --retries`, of signals that reach the script, of what a part has used, and of what site generic asks
for; test_job.py runs them."""
import json
import os

from scripts import STAND_IN, Scripts

# Says what srun says, and has sbatch reject lists of hosts if REJECTS is set.
FAILS = STAND_IN.replace('exit "$CODE"', 'printf "%b" "$SAID" >&2; exit "$CODE"').replace(
    "  *) exit 0 ;;", '  sbatch) [ -z "$REJECTS" ] || case $* in *--exclude*) exit 1 ;; esac; exit 0 ;;\n  *) exit 0 ;;')
# Signals the script and its other processes, as `scancel --full --signal=USR1` does.
SIGNALLED = STAND_IN.replace('exit "$CODE"', """if [ "$(basename "$0")" = srun ]; then
  sleep 0.2  # until tee runs
  kill -USR1 "$PPID" $(ps -o pid= --ppid "$PPID" | grep -vw $$)
  echo said >&2
fi
exit "$CODE\"""")


class Retries(Scripts):
    ARGUMENTS = ["--nodes", "2", "--ranks-per-node", "2", "--time", "01:00:00"]

    def fail(self, text, code, saves, said="", **variables):
        """(exit code, calls, output) after a part that failed."""
        os.environ.update(variables, SAID=said)
        self.addCleanup(lambda: [os.environ.pop(name, None) for name in [*variables, "SAID"]])
        return self.run_script(text, code, saves, stand_in=FAILS)

    def test_a_part_that_saved_is_tried_again_without_the_suspect_host(self):
        text = self.printed(*self.ARGUMENTS, "--retries", "2")
        lines = "srun: error: n5: task 1: Exited with exit code 1\\nsrun: error: n7: tasks 2-3: Killed\\n"
        code, calls, said = self.fail(text, 137, "step_1", lines)
        self.assertEqual((code, len(calls)), (137, 2), said)
        self.assertTrue(calls[1].startswith("sbatch --export=ALL,TRIREME_RETRIES=1 --exclude=n7 "), calls)
        self.assertIn("retry 1 of 2 without n7", said)
        self.assertIn("n5: task 1", said, "messages still reach the output")
        self.assertEqual((self.folder / "out/suspect_hosts").read_text(), "n7  # job 17: exit code 137\n")
        code, calls, said = self.fail(text, 1, "step_2", "srun: error: n3: task 0: Exited with exit code 1\\n", TRIREME_RETRIES="1")
        self.assertTrue(calls[1].startswith("sbatch --export=ALL,TRIREME_RETRIES=2 --exclude=n3,n7 "), calls)

    def test_failures_that_a_retry_would_repeat_end_the_job(self):
        text = self.printed(*self.ARGUMENTS, "--retries", "2")
        _, calls, said = self.fail(text, 137, "step_1", TRIREME_RETRIES="2")
        self.assertEqual(len(calls), 1, said)
        self.assertIn("after 2 retries", said)
        code, calls, said = self.fail(text, 1, "step_1")
        self.assertEqual((code, len(calls)), (1, 1), "nothing new was saved")
        self.assertIn("before a new checkpoint: no retry", said)
        for code in (0, 2, 76):
            self.assertEqual(len(self.fail(text, code, f"step_1{code}")[1]), 1)
        self.assertEqual(self.fail(text, 75, "step_20")[1][1:], ["scontrol requeue 17"])
        self.assertEqual(len(self.fail(self.printed(*self.ARGUMENTS), 137, "step_21")[1]), 1, "without the option")

    def test_several_hosts_in_a_message_exclude_none(self):
        text = self.printed(*self.ARGUMENTS, "--retries", "1")
        _, calls, said = self.fail(text, 1, "step_1", "srun: error: n[5-6]: tasks 0-3: Exited with exit code 1\\n")
        self.assertTrue(calls[1].startswith("sbatch --export=ALL,TRIREME_RETRIES=1 "), calls)
        self.assertNotIn("--exclude", calls[1])

    def test_a_list_that_sbatch_rejects_is_left_out(self):
        text = self.printed(*self.ARGUMENTS, "--retries", "1")
        _, calls, said = self.fail(text, 137, "step_1", "srun: error: n5: task 0: Killed\\n", REJECTS="1")
        self.assertEqual(["--exclude" in call for call in calls[1:]], [True, False], calls)

    def test_pbs_and_flux_submit_the_file_again(self):
        for batch, call in (("pbs", "qsub -v TRIREME_RETRIES=1 "), ("flux", "flux --parent batch --env=TRIREME_RETRIES=1 ")):
            self.refused("--retries: a job of", *self.ARGUMENTS, "--batch", batch, "--retries", "1")
            self.printed(*self.ARGUMENTS, "--batch", batch, "--retries", "1", "-o", "again.job")
            _, calls, said = self.fail((self.folder / "again.job").read_text(), 137, f"step_{batch}")
            self.assertEqual(calls[1:], [f"{call}{self.folder}/again.job"], said)

    def test_wrong_numbers_of_retries_are_rejected(self):
        self.refused("expected 0 or more", *self.ARGUMENTS, "--retries=-1")
        self.refused("exclude each other", *self.ARGUMENTS, "--retries", "1", "--no-requeue")

    def test_a_signal_to_the_whole_job_does_not_end_the_script(self):
        for arguments in ([], ["--retries", "1"]):
            text = self.printed(*self.ARGUMENTS, *arguments)
            code, calls, said = self.run_script(text, 75, f"step_{len(arguments)}", stand_in=SIGNALLED)
            self.assertEqual((code, calls[1:]), (75, ["scontrol requeue 17"]), said)
            self.assertIn("said", said)


class Used(Scripts):
    """What a part has used, in usage.jsonl."""

    def used(self, *arguments, **variables):
        """The line of a part that saves, without its time."""
        (self.folder / "out/usage.jsonl").unlink(missing_ok=True)
        text = self.printed("--nodes", "3", "--ranks-per-node", "2", "--time", "01:00:00", *arguments)
        os.environ.update(variables)
        self.addCleanup(lambda: [os.environ.pop(name, None) for name in variables])
        code, _, said = self.run_script(text, 0, "step_1")
        self.assertEqual(code, 0, said)
        line = json.loads((self.folder / "out/usage.jsonl").read_text())
        self.assertRegex(line.pop("time"), r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertLess(line.pop("seconds"), 60)
        return line

    def test_nodes_match_the_allocation(self):
        self.assertEqual(self.used(), {"nodes": 3})
        self.assertEqual(self.used(SLURM_JOB_NUM_NODES="4"), {"nodes": 4}, "with a spare node")
        for batch in ("pbs", "flux"):
            self.assertEqual(self.used("--batch", batch), {"nodes": 3})

    def test_energy_is_the_sum_of_the_steps(self):
        ended = "2026-11-26T10:00:00"
        rows = f"17|{ended}|9\\n17.batch|{ended}|9\\n17.extern|{ended}|9\\n17.0|{ended}|1500000\\n17.1|{ended}|2000000\\n"
        self.assertEqual(self.used(STEPS=rows), {"nodes": 3, "joules": 3500000})
        self.assertEqual(self.used(STEPS=rows.replace("17.", "17_3.")), {"nodes": 3, "joules": 3500000}, "a task of an array")

    def test_energy_that_is_not_measured_is_left_out(self):
        for value in ("", "0", "18446744073709551614"):
            self.assertEqual(self.used(STEPS=f"17.0|2026-11-26T10:00:00|{value}\\n"), {"nodes": 3})

    def test_a_run_that_made_no_folder_is_no_error(self):
        code, _, said = self.run_script(self.printed("--nodes", "1", "--ranks-per-node", "1", "--time", "01:00:00"), 2)
        self.assertEqual((code, said), (2, ""))


class Requests(Scripts):
    """What site generic asks the batch system for."""
    ARGUMENTS = ["--nodes", "2", "--ranks-per-node", "4", "--time", "01:00:00"]

    def test_memory(self):
        self.assertIn("#SBATCH --mem=0\n", self.printed(*self.ARGUMENTS))
        self.assertIn("#SBATCH --mem=64G\n", self.printed(*self.ARGUMENTS, "--memory", "64G"))
        pbs = [*self.ARGUMENTS, "--batch", "pbs"]
        self.assertIn("#PBS -l select=2:ncpus=4:mpiprocs=4\n", self.printed(*pbs))
        self.assertIn("#PBS -l select=2:ncpus=4:mpiprocs=4:mem=64gb\n", self.printed(*pbs, "--memory", "64gb"))
        self.refused("expected letters", *self.ARGUMENTS, "--memory", "64 G")

    def test_devices(self):
        self.assertNotIn("gpus", self.printed(*self.ARGUMENTS))
        cuda = self.built_with("CUDA, SERIAL", "MPICH 4.2")
        self.assertIn("#SBATCH --gpus-per-node=4\n", self.printed(*self.ARGUMENTS, *cuda))
        self.assertNotIn("gpus", self.printed(*self.ARGUMENTS, *cuda, "--devices", "0"))
        self.assertIn("#SBATCH --gpus-per-node=8\n", self.printed(*self.ARGUMENTS, *cuda, "--devices", "8"))
        self.assertIn("mpiprocs=4:ngpus=4:mem=9gb\n", self.printed(*self.ARGUMENTS, *cuda, "--batch", "pbs", "--memory", "9gb"))
        self.assertIn("--gpus-per-task=1 ", self.printed(*self.ARGUMENTS, *cuda, "--batch", "flux"))

    def test_the_launcher_uses_the_process_manager_of_the_build(self):
        for mpi, option in (("MPICH 4.0.2", "--mpi=pmi2 "), ("Open MPI v5.0.6", "--mpi=pmix "), ("Intel(R) MPI Library 2021.9", "--mpi=pmi2 "),
                            ("MPI : CRAY MPICH 8.1.30 (ANL base 3.4a2)", "")):
            text = self.printed(*self.ARGUMENTS, *self.built_with("SERIAL", mpi))
            self.assertIn(f"\n srun {option}--kill-on-bad-exit".replace("\n ", "\n"), text)
