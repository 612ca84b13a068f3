"""Tests of the scripts of `tools/job --spares`, with stand-ins for Slurm's programs; test_job.py runs them."""
import os

from scripts import Scripts

LOSES_NODES = """#!/bin/bash
# Nodes n0 to n3. The n-th start ends with the n-th code of CODE; those of the file `dead` then start no more programs.
echo "$(basename "$0") $*" >> "$NOTES"
case "$(basename "$0") $*" in
  "scontrol show hostnames "*) printf 'n0\nn1\nn2\nn3\n' ;;
  srun*/bin/true) for word; do case $word in --nodelist=*) ! grep -q "${word#*=}" dead 2>/dev/null; exit ;; esac; done ;;
  srun*) starts=$(grep -c checkpoint.restart= "$NOTES"); set -- $CODE; exit "${!starts}" ;;
  "trireme check "*) [ "${*: -1}" != "$REFUSED" ] ;;
esac
"""


class Spares(Scripts):
    """--spares: the job keeps its allocation, and the run continues on nodes that answer."""
    ARGUMENTS = ["--nodes", "3", "--spares", "1", "--ranks-per-node", "2", "--time", "01:00:00"]

    def run_with(self, codes, dead=(), refused=""):
        """(exit code, lines of the launcher, all calls, output)"""
        (self.folder / "dead").write_text("\n".join(dead))
        os.environ.update(REFUSED=refused, SLURM_JOB_NODELIST="n[0-3]")
        self.addCleanup(lambda: [os.environ.pop(name, None) for name in ("REFUSED", "SLURM_JOB_NODELIST")])
        code, calls, said = self.run_script(self.printed(*self.ARGUMENTS), codes, stand_in=LOSES_NODES)
        return code, [call for call in calls if "checkpoint.restart=" in call], calls, said

    def test_the_allocation_includes_spare_nodes_and_survives_a_lost_node(self):
        text = self.printed(*self.ARGUMENTS)
        for line in ("--nodes=4", "--no-kill", "--ntasks-per-node=2"):
            self.assertIn(f"#SBATCH {line}\n", text)
        self.assertNotIn("--no-kill", self.printed(*self.ARGUMENTS[:2], *self.ARGUMENTS[4:]))

    def test_a_failure_of_the_run_is_not_repeated(self):
        for codes in ("0", "1", "2", "137"):
            code, starts, _, said = self.run_with(codes)
            self.assertEqual((code, len(starts)), (int(codes), 1), said)
            self.assertIn(" --nodes=3 --ntasks=6 ", starts[0])
            self.assertNotIn("--exclude", starts[0])
        code, starts, _, said = self.run_with("2", dead=["n1"])
        self.assertEqual((code, len(starts)), (2, 1), "a mistake in the deck")

    def test_a_spare_node_replaces_a_lost_node_which_is_then_excluded(self):
        code, starts, _, said = self.run_with("1 0", dead=["n2"])
        self.assertEqual((code, len(starts)), (0, 2), said)
        self.assertIn(" --exclude=n2 ", starts[1])
        self.assertIn(" --nodes=3 --ntasks=6 ", starts[1])
        code, starts, _, said = self.run_with("143 0", dead=["n1", "n2"])
        self.assertRegex(starts[1], " --exclude=(n1,n2|n2,n1) ")
        self.assertIn(" --nodes=2 --ntasks=4 ", starts[1])

    def test_node_counts_that_the_deck_rejects_are_not_used(self):
        _, starts, _, said = self.run_with("1 0", dead=["n1", "n2"], refused="4")
        self.assertIn(" --nodes=1 --ntasks=2 ", starts[1], said)

    def test_the_job_is_requeued_without_nodes(self):
        code, starts, calls, said = self.run_with("1", dead=["n0", "n1", "n2", "n3"])
        self.assertEqual((code, len(starts), calls[-1]), (1, 1, "scontrol requeue 17"), said)

    def test_the_same_failure_after_a_lost_node_ends_the_job(self):
        code, starts, _, said = self.run_with("1 1", dead=["n2"])
        self.assertEqual((code, len(starts)), (1, 2), said)

    def test_other_launchers_and_ranges_are_rejected(self):
        self.refused("--spares needs Slurm", *self.ARGUMENTS, "--batch", "pbs")
        self.refused("--spares needs Slurm", *self.ARGUMENTS, "--launch", "mpiexec -n {ranks}")
        self.refused("--nodes 3-4", "--nodes", "3-4", *self.ARGUMENTS[2:])
        self.refused("expected 0 or more", *self.ARGUMENTS[:2], "--spares", "-1", *self.ARGUMENTS[4:])
