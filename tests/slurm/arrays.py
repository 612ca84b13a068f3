"""Tests of the scripts of `tools/job --array` and `--sweep`; test_job.py runs them."""
import os

from scripts import Scripts


class Arrays(Scripts):
    """--array and --sweep: each task of a job array has overrides and a folder of its own."""
    ARGUMENTS = ["--ranks-per-node", "2", "--time", "01:00:00"]
    SWEEP = ["--sweep", "optimizer.learning_rate=1e-3,3e-4", "--sweep", "optimizer.weight_decay=0,0.1"]

    def run_task(self, text, task, code=0, saves="", suspects=""):
        os.environ.update(SLURM_ARRAY_TASK_ID=str(task), SLURM_ARRAY_JOB_ID="40")
        self.addCleanup(lambda: [os.environ.pop(name, None) for name in ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_JOB_ID")])
        return self.run_script(text, code, saves, suspects)

    def test_each_task_of_a_sweep_has_its_values_and_its_folder(self):
        text = self.printed(*self.ARGUMENTS, *self.SWEEP, "run.steps=3")
        self.assertIn("\n#SBATCH --array=0-3\n", text)
        self.assertIn("\n#SBATCH --output=deck-%A_%a.out\n", text)
        points = [(rate, decay) for rate in ("1e-3", "3e-4") for decay in ("0", "0.1")]
        names = [f"task_{task}_learning_rate_{rate}_weight_decay_{decay}" for task, (rate, decay) in enumerate(points)]
        for task, (rate, decay) in enumerate(points):
            code, calls, said = self.run_task(text, task)
            self.assertEqual((code, len(calls)), (0, 1), said)
            self.assertTrue(calls[0].endswith(
                f"trireme train deck.toml run.steps=3 run.directory=out/{names[task]} optimizer.learning_rate={rate} "
                f"optimizer.weight_decay={decay} checkpoint.restart=latest"), calls)
        self.assertIn("# summary of the tasks: trireme report " + " ".join(f"out/{name}" for name in names) + " -o deck.html\n", text)
        self.assertNotEqual(self.run_task(text, 4)[0], 0)

    def test_the_command_that_compares_the_tasks_is_printed(self):
        said = self.printed(*self.ARGUMENTS, "--array", "0,2", "-o", "a.job").splitlines()
        self.assertEqual(said, ["sbatch a.job", "trireme report out/task_0 out/task_2 -o deck.html"])
        self.assertEqual(self.printed(*self.ARGUMENTS, "--array", "3", "-o", "a.job").splitlines(), ["sbatch a.job"])

    def test_overrides_name_the_task(self):
        text = self.printed(*self.ARGUMENTS, "--array", "0-2:2%1", "run.seed={task}", "run.directory=a b/{task}x",
                            "checkpoint.directory=saved")
        self.assertIn("\n#SBATCH --array=0-2:2%1\n", text)
        code, calls, said = self.run_task(text, 2)
        self.assertTrue(calls[0].endswith("trireme train deck.toml run.seed=2 run.directory=a b/2x "
                                          "checkpoint.directory=saved/task_2 checkpoint.restart=latest"), calls + [said])

    def test_a_task_continues_by_itself(self):
        text = self.printed(*self.ARGUMENTS, "--array", "0-1", "run.directory={task}").replace('"${task}/', '"out/')
        text = text.replace('run="${task}"', "run=out")
        code, calls, said = self.run_task(text, 1, 75, "step_1")
        self.assertEqual((code, calls[1:]), (75, ["scontrol requeue 40_1"]), said)
        code, calls, said = self.run_task(text, 1, 76, "step_1", "n7  # rank 1\\n")
        self.assertEqual(code, 76)
        self.assertTrue(calls[1].startswith("sbatch --array=1 --exclude=n7 "), calls)

    def test_the_script_does_not_start_outside_an_array(self):
        code, calls, said = self.run_script(self.printed(*self.ARGUMENTS, *self.SWEEP), 0)
        self.assertEqual((code != 0, calls), (True, []))
        self.assertIn("submit this script with sbatch", said)

    def test_values_may_be_lists(self):
        text = self.printed(*self.ARGUMENTS, "--sweep", 'optimizer.frozen=["layers.0","embedding"],[]')
        self.assertIn("""0) task_name=task_0_frozen_-layers.0-embedding swept=('optimizer.frozen=["layers.0","embedding"]') ;;""", text)
        self.assertIn("#SBATCH --array=0-1\n", text)

    def test_a_deck_is_checked_for_each_task(self):
        said = self.refused("task 1 (model.heads=5)", *self.ARGUMENTS, "--sweep", "model.heads=3,5")
        self.assertIn("[model] hid", said)
        self.refused("does not resolve for 2 ranks", *self.ARGUMENTS, "--array", "0-1", "model.heads=5")

    def test_mistakes(self):
        for wrong, part in (("a", "expected task numbers"), ("3-1", "3-1 is empty"), ("0-3%0", "expected task numbers"),
                            ("0-99999", "more than 10000 tasks"), ("1,,2", "expected task numbers")):
            self.refused(part, *self.ARGUMENTS, "--array", wrong)
        for wrong, part in (("steps", "expected section.key"), ("run.steps=1,1", "given twice"), ("run.steps=1,,2", "an empty value"),
                            ("run.directory=a,b", "the script sets this key")):
            self.refused(part, *self.ARGUMENTS, "--sweep", wrong)
        self.refused("a key is given twice", *self.ARGUMENTS, "--sweep", "run.steps=1,2", "--sweep", "run.steps=3,4")
        self.refused("--sweep has 4 tasks", *self.ARGUMENTS, *self.SWEEP, "--array", "0-4")
        self.refused("need Slurm, not flux", *self.ARGUMENTS, *self.SWEEP, "--batch", "flux")
        self.refused("put {task} into it", *self.ARGUMENTS, "--array", "0-1", "run.directory={task_name")
