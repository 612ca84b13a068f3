#!/usr/bin/env python3
"""What tools/job prints and refuses. Scripts for PBS and Flux, and the branches of Slurm's, run here against stand-ins for
the launcher and the batch system that note how they are called.

    test_job.py --bin FOLDER
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import unittest
from pathlib import Path

import scripts
from scripts import DECK, JOB, ROOT, Scripts
from arrays import Arrays  # noqa: F401: their tests run with these
from binding import Binding  # noqa: F401
from retries import Requests, Retries, Used  # noqa: F401
from spares import Spares  # noqa: F401

SITES = sorted(path.stem for path in (ROOT / "tools/sites").glob("*.toml"))
WANTED = {"alps", "aurora", "frontier", "generic", "lumi", "perlmutter"}
BATCH = {"slurm": "#SBATCH ", "pbs": "#PBS ", "flux": "#flux: "}
# What each site needs besides --time, and what its ranks per node are then.
NEEDS = {"generic": (["--ranks-per-node", "4"], 4), "perlmutter": (["--account", "m0_g"], 4),
         "frontier": (["--account", "abc"], 8), "lumi": (["--account", "project_1"], 8),
         "alps": (["--account", "g1"], 4), "aurora": (["--account", "p", "--queue", "debug"], 12)}


class Sites(Scripts):
    def test_all_sites_exist(self):
        self.assertLessEqual(WANTED, set(SITES))
        self.assertEqual(set(NEEDS), set(SITES), "a new site: say what it needs in NEEDS")

    def test_scripts_are_bash_and_their_directives_come_first(self):
        for name in SITES:
            for batch, mark in BATCH.items():
                launch = tomllib.loads((ROOT / f"tools/sites/{name}.toml").read_text())["launch"]
                if batch not in launch:
                    self.refused(f"--batch {batch}", "--site", name, "--batch", batch, "--time", "01:00:00",
                                 *NEEDS[name][0])
                    continue
                with self.subTest(site=name, batch=batch):
                    text = self.printed("--site", name, "--batch", batch, "--nodes", "2", "--time", "01:00:00",
                                        *NEEDS[name][0])
                    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
                    self.assertEqual((checked.returncode, checked.stderr), (0, ""))
                    self.expect_in_order(text, mark)
                    ranks = 2 * NEEDS[name][1]
                    line = self.launch_line(text)
                    self.assertRegex(" ".join(line), rf"(--ntasks=|-n ){ranks}( |$)")
                    self.assertEqual(line[line.index("trireme"):][:3], ["trireme", "train", "deck.toml"])
                    self.assertNotRegex(text, r"(?<!\{)\{[a-z_]+\}(?!\})")

    def expect_in_order(self, text, mark):
        lines = text.splitlines()
        self.assertEqual(lines[0], "#!/bin/bash")
        count = sum(line.startswith(mark) for line in lines)
        self.assertGreater(count, 4)
        self.assertTrue(all(line.startswith(mark) for line in lines[1:1 + count]), text)

    @staticmethod
    def launch_line(text):
        found = [line for line in text.splitlines() if 'checkpoint.restart="$restart"' in line]
        assert len(found) == 1, text
        return shlex.split(found[0])

    def test_every_fact_has_its_source(self):
        for name in SITES:
            site = tomllib.loads((ROOT / f"tools/sites/{name}.toml").read_text())
            for table in ("node", "batch_options", "modules", "environment", "launch", "queues"):
                for part in site.get(table, []) if isinstance(site.get(table), list) else [site.get(table)]:
                    if part is not None:
                        self.assertRegex(part.get("source", ""), r"^https://\S+", f"{name}: {table}")

    def test_cray_mpich_is_told_that_messages_are_in_host_memory(self):
        """A program without Cray's GTL library aborts otherwise."""
        for name in ("alps", "perlmutter"):
            self.assertIn("\nexport MPICH_GPU_SUPPORT_ENABLED=0\n", self.printed("--site", name, "--time", "01:00:00", *NEEDS[name][0]))

    def test_hidden_devices_are_on_the_check_list(self):
        for name in SITES:
            text = self.printed("--site", name, "--time", "01:00:00", *NEEDS[name][0])
            if "--gpus-per-task=1" in text.partition("\nsrun ")[2]:
                self.assertRegex(text, "# to be checked: whether ranks see their node's other devices", name)

    def test_settings_name_their_sources(self):
        text = self.printed("--site", "alps", "--time", "01:00:00", *NEEDS["alps"][0])
        lines = text.splitlines()
        exports = [number for number, line in enumerate(lines) if line.startswith(("export NCCL", "export FI_"))]
        self.assertGreater(len(exports), 5)
        for number in exports:
            self.assertRegex(lines[number - 1], r"^# .*https://")


class Slurm(Scripts):
    GENERIC = ["--nodes", "2", "--ranks-per-node", "2", "--time", "06:00:00"]

    def test_the_signal_reaches_steps_and_the_job_can_be_requeued(self):
        text = self.printed(*self.GENERIC)
        for line in ("--signal=USR1@300", "--requeue", "--open-mode=append", "--nodes=2", "--ntasks-per-node=2",
                     "--time=06:00:00"):
            self.assertIn(f"#SBATCH {line}\n", text)
        self.assertNotIn("run.time_limit", text)
        self.assertIn("#SBATCH --signal=USR1@50\n", self.printed(*self.GENERIC, "--lead", "50"))

    def test_the_script_reacts_to_each_exit_code(self):
        text = self.printed(*self.GENERIC)
        code, calls, _ = self.run_script(text, 0, "step_1")
        self.assertEqual((code, [call.split()[0] for call in calls]), (0, ["srun"]))
        self.assertTrue(calls[0].endswith("trireme train deck.toml checkpoint.restart=latest"), calls)
        code, calls, _ = self.run_script(text, 75, "step_2")
        self.assertEqual((code, calls[1:]), (75, ["scontrol requeue 17"]))
        code, calls, said = self.run_script(text, 75, "step_2")
        self.assertEqual((code, len(calls)), (1, 1), said)
        self.assertIn("without a new checkpoint", said)
        for failure in (1, 2, 137, 143):
            code, calls, _ = self.run_script(text, failure, "step_3")
            self.assertEqual((code, len(calls)), (failure, 1))

    def test_a_launcher_that_hides_signals_gets_a_time_limit(self):
        text = self.printed(*self.GENERIC, "--launch", "mpiexec -n {ranks}")
        self.assertNotIn("--signal", text)
        self.assertIn("mpiexec -n 4 trireme train deck.toml run.time_limit=05:55:00 ", text)

    def test_overrides_are_quoted_and_move_the_checkpoints(self):
        text = self.printed(*self.GENERIC, "run.directory=a b", "optimizer.learning_rate=1e-3")
        self.assertIn("latest='a b/checkpoints/latest'", text)
        code, calls, _ = self.run_script(text, 0)
        self.assertIn("run.directory=a b optimizer.learning_rate=1e-3", calls[0])

    def test_initial_weights_are_used_by_the_first_part_only(self):
        (self.folder / "weights").mkdir()
        (self.folder / "weights/manifest.json").touch()
        text = self.printed(*self.GENERIC, "checkpoint.restart=weights")
        _, calls, _ = self.run_script(text, 75, "step_1")
        self.assertTrue(calls[0].endswith("trireme train deck.toml checkpoint.restart=weights"), calls)
        _, calls, _ = self.run_script(text, 0, "step_2")
        self.assertTrue(calls[0].endswith("trireme train deck.toml checkpoint.restart=latest"), calls)

    def test_a_missing_deck_is_reported(self):
        text = self.printed(*self.GENERIC)
        (self.folder / "deck.toml").unlink()
        code, calls, said = self.run_script(text, 0)
        self.assertEqual((code, calls), (2, []))
        self.assertIn("there is no deck.toml", said)

    def test_no_requeue_is_an_option(self):
        text = self.printed(*self.GENERIC, "--no-requeue")
        self.assertIn("#SBATCH --no-requeue\n", text)
        code, calls, said = self.run_script(text, 75, "step_1")
        self.assertEqual((code, len(calls)), (75, 1))
        self.assertIn("submit the same script again", said)


    FOUND = "n7.cluster  # step 3: rank 1\\nn7.cluster  # step 3: rank 0\\nn2  # step 3: rank 5\\n"

    def test_suspect_hosts_are_excluded_once(self):
        for code in (75, 76):  # repaired, or not
            text = self.printed(*self.GENERIC, f"run.directory=out{code}").replace(f"out{code}", "out")
            (self.folder / "out/suspect_hosts").unlink(missing_ok=True)
            ended, calls, said = self.run_script(text, code, f"step_{code}", self.FOUND)
            self.assertEqual((ended, [call.split("bash")[0].strip() for call in calls[1:]]),
                             (code, ["sbatch --exclude=n2,n7"]), said)
            self.assertIn("wrong numbers on n2,n7 (out/suspect_hosts)", said)
            ended, calls, said = self.run_script(text, 76)  # nothing new to exclude
            self.assertEqual((ended, len(calls)), (76, 1), said)
            ended, calls, said = self.run_script(text, 75, f"step_{code + 5}")
            self.assertEqual((ended, calls[1:]), (75, ["scontrol requeue 17"]), said)

    def test_hosts_are_excluded_by_the_means_of_the_batch_system(self):
        arguments = ["--nodes", "2", "--ranks-per-node", "2", "--time", "06:00:00", "-o", "again.job"]
        for batch, calls in (("flux", [f"flux --parent batch --requires=-host:n2,n7 {self.folder}/again.job"]), ("pbs", [])):
            (self.folder / "out/suspect_hosts").unlink(missing_ok=True)
            self.printed("--batch", batch, *arguments)
            text = (self.folder / "again.job").read_text()
            code, called, said = self.run_script(text, 76, "", self.FOUND)
            self.assertEqual((code, called[1:]), (76, calls), said)
            self.assertIn("wrong numbers on n2,n7", said)


class Others(Scripts):
    def test_pbs_and_flux_submit_the_script_again(self):
        for batch, call in (("pbs", "qsub {}"), ("flux", "flux --parent batch {}")):
            with self.subTest(batch=batch):
                arguments = ["--batch", batch, "--nodes", "2", "--ranks-per-node", "2", "--time", "1-00:00:00"]
                said = self.printed(*arguments, "-o", "again.job")
                self.assertIn(" again.job\n", said)
                text = (self.folder / "again.job").read_text()
                self.assertIn(" run.time_limit=23:55:00 ", text)
                code, calls, _ = self.run_script(text, 75, f"step_{batch}")
                self.assertEqual((code, calls[1:]), (75, [call.format(self.folder / "again.job")]))
                code, calls, _ = self.run_script(text, 1, "step_9")
                self.assertEqual((code, len(calls)), (1, 1))
                code, calls, said = self.run_script(self.printed(*arguments), 75, f"step_{batch}_2")
                self.assertEqual((code, len(calls)), (75, 1))
                self.assertIn("submit the same script again", said)

    def test_a_deck_keeps_its_own_time_limit(self):
        arguments = ["--batch", "pbs", "--ranks-per-node", "2", "--time", "01:00:00"]
        self.assertNotIn("run.time_limit=00:55", self.printed(*arguments, "run.time_limit=00:30:00"))
        self.refused("run.time_limit = 00:58:00", *arguments, "run.time_limit=00:58:00")


class NodeRanges(Scripts):
    """--nodes 2-4: the batch system chooses, and each part of the run takes what it gets."""
    ARGUMENTS = ["--ranks-per-node", "2", "--time", "01:00:00"]

    def run_on(self, nodes, text):
        os.environ["SLURM_JOB_NUM_NODES"] = nodes
        self.addCleanup(os.environ.pop, "SLURM_JOB_NUM_NODES", None)
        return self.run_script(text, 0)

    def test_the_script_counts_the_ranks_of_its_nodes(self):
        text = self.printed("--nodes", "2-4", *self.ARGUMENTS, "--cpus-per-rank", "3")
        self.assertIn("\n#SBATCH --nodes=2-4\n#SBATCH --mincpus=6\n#SBATCH --cpus-per-task=3\n", text)
        self.assertNotIn("#SBATCH --ntasks", text)
        for nodes in ("2", "3", "4"):
            code, calls, said = self.run_on(nodes, text)
            self.assertEqual(code, 0, said)
            self.assertIn(f" --nodes={nodes} --ntasks={2 * int(nodes)} --ntasks-per-node=2 --cpus-per-task=3 trireme",
                          calls[0])
            self.assertIn(f"job: {nodes} nodes, {2 * int(nodes)} ranks", said)

    def test_directives_do_not_count_unknown_tasks(self):
        for name in SITES:
            if "slurm" in tomllib.loads((ROOT / f"tools/sites/{name}.toml").read_text())["launch"]:
                text = self.printed("--site", name, "--nodes", "2-4", "--time", "01:00:00", *NEEDS[name][0])
                own = [line for line in text.splitlines() if line.startswith("#SBATCH ")]
                self.assertNotRegex("".join(own), "ntasks|per-task=1", f"{name}: {own}")
                self.assertEqual(subprocess.run(["bash", "-n"], input=text, text=True).returncode, 0)
        text = self.printed("--site", "alps", "--nodes", "2-4", "--time", "01:00:00", *NEEDS["alps"][0])
        self.assertIn("#SBATCH --gpus-per-node=4\n", text)

    def test_a_range_of_one_size_is_that_size(self):
        self.assertEqual(self.printed("--nodes", "2-2", *self.ARGUMENTS).replace("2-2", "2"),
                         self.printed("--nodes", "2", *self.ARGUMENTS))

    def test_a_part_that_stopped_early_is_requeued(self):
        text = self.printed("--nodes", "2-4", *self.ARGUMENTS)
        os.environ["SLURM_JOB_NUM_NODES"] = "3"
        self.addCleanup(os.environ.pop, "SLURM_JOB_NUM_NODES", None)
        code, calls, said = self.run_script(text, 75, "step_00000002")
        self.assertEqual((code, calls[1:]), (75, ["scontrol requeue 17"]), said)

    def test_the_script_does_not_start_outside_slurm(self):
        code, calls, said = self.run_on("", self.printed("--nodes", "2-4", *self.ARGUMENTS))
        self.assertNotEqual(code, 0)
        self.assertEqual(calls, [])
        self.assertIn("submit this script with sbatch", said)

    def test_a_custom_launcher_may_quote_the_numbers(self):
        text = self.printed("--nodes", "2-4", *self.ARGUMENTS, "--launch", "mpiexec -n {ranks} -x 'a$b \"{nodes}\"'")
        _, calls, said = self.run_on("3", text)
        self.assertTrue(calls[0].startswith('mpiexec -n 6 -x a$b "3" trireme train'), calls + [said])

    def test_invalid_ranges_are_rejected(self):
        for wrong, part in (("4-2", "4-2: the larger number comes first; give 2-4"),
                            ("0-3", "0-3: a job has at least 1 node"), ("a-b", '"a-b" is not a number of nodes'),
                            ("2-", '"2-" is not a number'), ("-2", '"-2" is not a number'),
                            ("2-3-4", '"2-3-4" is not'), ("1-99999999", "is not a number")):
            self.refused(part, f"--nodes={wrong}", *self.ARGUMENTS)
        for batch in ("pbs", "flux"):
            self.refused(f"{batch} takes one number of nodes", "--batch", batch, "--nodes", "2-4", *self.ARGUMENTS)
        lumi = ["--site", "lumi", "--account", "p", "--time", "01:00:00"]
        self.refused("lumi has 2978 nodes", *lumi, "--nodes", "2-3000")
        self.refused("takes 1 to 1024", *lumi, "--nodes", "1000-1025")
        self.refused("gives at most 02:00:00", "--site", "frontier", "--account", "p", "--time", "03:00:00",
                     "--nodes", "90-200")

    def test_the_deck_must_resolve_for_every_node_count(self):
        """96 samples: 2 and 3 nodes of 2 ranks divide them, 5 and 7 do not."""
        said = self.refused("does not resolve for 10 ranks, --nodes 5 times --ranks-per-node 2, nor for 7 nodes; "
                            'choose --nodes without these, or [parallel] layout = "auto"', "--nodes", "2-8", *self.ARGUMENTS)
        self.assertIn("[batch] global = 96 (deck.toml:10)", said)
        said = self.refused("nor for 7 nodes; choose --nodes without these:", "--nodes", "2-8", *self.ARGUMENTS,
                            "parallel.layout=auto")
        self.assertIn("no layout fits 10 ranks", said)
        self.printed("--nodes", "2-7", *self.ARGUMENTS, "parallel.layout=auto", "model.layers=7")


class Mistakes(Scripts):
    TIME = ["--time", "01:00:00"]

    def test_each_mistake_gives_one_error(self):
        rpn = ["--ranks-per-node", "2"]
        self.refused('unknown site "perlmuter"', "--site", "perlmuter", *self.TIME)
        self.refused("--ranks-per-node", *self.TIME)
        self.refused("needs a project: --account", "--site", "lumi", *self.TIME)
        self.refused("needs a queue: --queue debug", "--site", "aurora", "--account", "p", *self.TIME)
        self.refused('"two" is not a number of nodes; give one such as 4, or 4-8', *rpn, *self.TIME, "--nodes", "two")
        self.refused("0: a job has at least 1 node", *rpn, *self.TIME, "--nodes", "0")
        self.refused("0 is not at least 1", "--ranks-per-node", "0", *self.TIME)
        self.refused("lumi has 2978 nodes", "--site", "lumi", "--account", "p", *self.TIME, "--nodes", "3000")
        self.refused("takes 1 to 1024", "--site", "lumi", "--account", "p", *self.TIME, "--nodes", "1025")
        self.refused("gives at most 02:00:00", "--site", "frontier", "--account", "p", "--time", "03:00:00")
        self.refused("a node of lumi has 8 devices", "--site", "lumi", "--account", "p", *self.TIME,
                     "--ranks-per-node", "9")
        self.refused("expected a duration", *rpn, "--time", "1h")
        self.refused("--lead 300", *rpn, "--time", "00:05:00")
        self.refused("is not an override", *rpn, *self.TIME, "steps")
        self.refused("unknown {rank}", *rpn, *self.TIME, "--launch", "srun -n {rank}")
        self.refused("no such program", *rpn, *self.TIME, "--trireme", "no/trireme")
        self.refused("No such file or directory", *rpn, *self.TIME, "-o", "no/folder/x.job")

    def test_no_argument_adds_a_line_to_the_script(self):
        """Also a deck's name: it is in a comment of the script."""
        arguments = ["--ranks-per-node", "2", *self.TIME]
        for end in "\n\r\x0b\x0c\x1b\x7f\u0085\u2028":
            for given in (["--account", f"a{end}touch trap"], ["--queue", f"q{end}touch trap"],
                          ["--name", f"n{end}touch trap"], [f"--directive=--mem=0{end}touch trap"],
                          [f"--setup=true{end}touch trap"], [f"--launch=srun{end}touch trap"],
                          [f"run.directory=x{end}touch trap"], ["-o", f"x{end}y.job"]):
                self.refused("control character", *arguments, *given)
        name = "x\ntouch trap\n.toml"
        (self.folder / name).write_text(DECK)
        said = subprocess.run([sys.executable, "-B", JOB, name, *arguments, "--name", "x"], cwd=self.folder,
                              capture_output=True, text=True)
        self.assertEqual((said.returncode, said.stdout), (2, ""))
        self.assertIn("U+000A", said.stderr)
        (self.folder / "deck.toml").write_text(DECK.replace('"out"', '"out\\ntouch trap"'))
        self.refused("[run] directory", *arguments)
        (self.folder / "deck.toml").write_text(DECK)
        good = (ROOT / "tools/sites/generic.toml").read_text()
        (self.folder / "mine.toml").write_text(re.sub('description = "', 'description = "a\\\\ntouch trap ', good, count=1))
        self.refused("control character", "--site", "mine.toml", *arguments)

    def test_accounts_and_queues_are_one_word(self):
        for word in ("a b", "a --uid=0", "a;b", "a'b", 'a"b', "$(id)"):
            for option in ("--account", "--queue"):
                self.refused("expected letters, digits", "--ranks-per-node", "2", *self.TIME, option, word)

    def test_inputs_are_never_overwritten(self):
        arguments = ["--ranks-per-node", "2", *self.TIME]
        (self.folder / "mine.toml").write_text((ROOT / "tools/sites/generic.toml").read_text())
        (self.folder / "tokens.h5").write_text("tokens")
        (self.folder / "link").symlink_to("deck.toml")
        (self.folder / "hard").hardlink_to(self.folder / "mine.toml")
        for output in ("deck.toml", "./deck.toml", "link", "mine.toml", "hard", "tokens.h5"):
            self.refused("an input of the job", *arguments, "--site", "mine.toml", "-o", output)
        self.refused("exists and is not a file", *arguments, "-o", ".")
        self.assertEqual((self.folder / "deck.toml").read_text(), DECK)
        (self.folder / "tokens.h5").unlink()
        self.assertEqual(self.call(*arguments, "-o", "new.job").returncode, 0)
        self.assertEqual(self.call(*arguments, "-o", "new.job").returncode, 0)  # a script may be made again

    def test_a_deck_that_does_not_resolve_is_rejected_before_submission(self):
        said = self.refused("does not resolve for 5 ranks", "--ranks-per-node", "5", *self.TIME)
        self.assertIn("[batch] global = 96 (deck.toml:10)", said)
        self.refused("did you mean layers", "--ranks-per-node", "2", *self.TIME, "model.layer=3")

    def test_long_ranges_and_arrays_are_checked_in_part(self):
        arguments = ["--ranks-per-node", "1", *self.TIME, *self.built_with("SERIAL")]
        said = self.call("--nodes", "1-64", *arguments)
        self.assertIn("the deck was checked for 32 of the numbers of nodes in 1-64", said.stderr)
        said = self.call("--array", "0-40", *arguments, "run.seed={task}")
        self.assertIn("the deck was checked for the first 32 tasks", said.stderr)
        self.assertIn("#SBATCH --array=0-40\n", said.stdout)

    def test_a_deck_that_no_trireme_checks_is_reported(self):
        arguments = [sys.executable, "-B", JOB, "deck.toml", "--ranks-per-node", "5"]
        environment = dict(os.environ, PATH=str(self.folder))
        said = subprocess.run([*arguments, *self.TIME], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual(said.returncode, 0)
        self.assertIn("the deck was not checked: trireme is not on PATH; give --trireme FILE", said.stderr)
        self.assertNotIn("export PATH", said.stdout)
        said = subprocess.run(arguments, cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual((said.returncode, said.stdout), (2, ""))
        self.assertIn("--time is required", said.stderr)

    def test_lines_before_the_run(self):
        text = self.printed("--ranks-per-node", "2", *self.TIME, "--setup", "module load trireme", "--setup", "ulimit -c 0")
        self.assertIn("\nmodule load trireme\nulimit -c 0\n", text)
        self.assertNotIn("export PATH", text)

    def test_unreadable_decks_are_rejected(self):
        (self.folder / "deck.toml").write_text("[run\n")
        self.refused("deck deck.toml", "--ranks-per-node", "2", *self.TIME)
        (self.folder / "deck.toml").unlink()
        self.refused("deck deck.toml: No such file", "--ranks-per-node", "2", *self.TIME)

    def test_mistakes_in_site_files_are_reported(self):
        good = (ROOT / "tools/sites/generic.toml").read_text()
        for change, part in ((("batch = \"slurm\"", "batch = \"lsf\""), "batch = 'lsf'"),
                             (("[launch]", "[lanch]"), "lanch is not a key; did you mean launch?"),
                             (("slurm = [\"srun\"", "slurm = [1"), "expected a list of strings"),
                             (("[launch]", "[node]\ncout = 1\n[launch]"), "[node] cout is not a key; did you mean count?"),
                             (("[launch]\nsource", "[launch]\n# source"), "launch has no source"),
                             (("[launch]", "[node]\ncount = 0\n[launch]"), "expected at least 1"),
                             (("description", "description ="), "site file mine.toml")):
            self.assertIn(change[0], good)
            (self.folder / "mine.toml").write_text(good.replace(*change, 1))
            self.refused(part, "--site", "mine.toml", "--ranks-per-node", "2", *self.TIME)
        machine = ROOT / "inputs/machines/h100.toml"
        self.refused(f"{machine} is a machine file, which `trireme check`", "--site", str(machine), *self.TIME)
        (self.folder / "mine.toml").write_text(good)
        self.printed("--site", "mine.toml", "--ranks-per-node", "2", *self.TIME)

    def test_the_documents_site_file_works(self):
        document = (ROOT / "docs/sites.md").read_text()
        (self.folder / "mine.toml").write_text(re.search(r"```toml\n(.*?)```", document, re.DOTALL)[1])
        text = self.printed("--site", "mine.toml", "--account", "p", *self.TIME)
        self.assertIn("#SBATCH --partition=gpu\n", text)
        self.assertIn("export NCCL_SOCKET_IFNAME=hsn\n", text)
        self.refused("takes 1 to 64", "--site", "mine.toml", "--account", "p", *self.TIME, "--nodes", "65")

    def test_help_shows_an_example(self):
        said = subprocess.run([sys.executable, "-B", JOB, "--help"], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0)
        self.assertTrue(re.search(r"tools/job inputs/\S+\.toml --site", said.stdout))


class Installed(Scripts):
    """The program as an installation has it."""

    def setUp(self):
        super().setUp()
        share = self.folder / "prefix/share/trireme"
        share.mkdir(parents=True)
        (self.folder / "prefix/bin").mkdir()
        shutil.copytree(ROOT / "tools/python", share / "python", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("job", "calibrate", "tensorboard"):
            shutil.copy(ROOT / "tools" / name, self.folder / f"prefix/bin/trireme-{name}")
        shutil.copytree(ROOT / "tools/sites", share / "sites")

    def say(self, name, *arguments):
        return subprocess.run([sys.executable, self.folder / f"prefix/bin/{name}", *arguments], cwd=self.folder,
                              capture_output=True, text=True)

    def test_messages_name_the_installed_program(self):
        arguments = ["deck.toml", "--ranks-per-node", "1", "--trireme", str(scripts.bin_folder / "trireme")]
        said = self.say("trireme-job", *arguments, "--time", "01:00:00")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertIn("# made by: trireme-job deck.toml", said.stdout)
        self.assertNotIn("tools/", said.stdout)
        self.assertIn("trireme-job: error: --time is required", self.say("trireme-job", *arguments).stderr)
        self.assertIn('trireme-job: error: unknown site "x"', self.say("trireme-job", *arguments, "--time", "01:00:00", "--site", "x").stderr)
        for name in ("trireme-job", "trireme-calibrate", "trireme-tensorboard"):
            said = self.say(name, "--help")
            self.assertEqual(said.returncode, 0)
            self.assertIn(f"usage: {name} ", said.stdout)
            self.assertNotIn("tools/", said.stdout)
        self.assertEqual(list(self.folder.rglob("__pycache__")), [], "an installation stays as it was installed")

    def test_older_and_newer_versions_of_python_print_the_same_script(self):
        """The versions that are on PATH."""
        arguments = [self.folder / "prefix/bin/trireme-job", "deck.toml", "--trireme", scripts.bin_folder / "trireme",
                     "--ranks-per-node", "2", "--time", "01:00:00", "--sweep", "run.seed=1,2", "model.layers=4"]
        said = {}
        for python in (sys.executable, *(f"python3.{minor}" for minor in range(6, 15))):
            if subprocess.run(["sh", "-c", f"{shlex.quote(python)} -c pass"], capture_output=True).returncode == 0:
                run = subprocess.run([python, *arguments], cwd=self.folder, capture_output=True, env={**os.environ, "LC_ALL": "C"})
                self.assertEqual((run.returncode, run.stderr), (0, b""), python)
                said[python] = run.stdout
        self.assertEqual(set(said.values()), {said[sys.executable]}, list(said))


if __name__ == "__main__":
    at = sys.argv.index("--bin")
    scripts.bin_folder = Path(sys.argv[at + 1]).resolve()
    unittest.main(argv=sys.argv[:at] + sys.argv[at + 2:])
