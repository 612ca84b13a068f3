"""Job scripts of tools/job for a small deck, and stand-ins for the launcher and the batch system to run them against."""
import os
import runpy
import shlex
import subprocess
import sys
import tempfile
import traceback
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "tools/job"
sys.path.insert(0, str(ROOT / "tools/python"))
import trireme_scripts.job  # noqa: E402, F401: read once for all calls
DECK = """[run]
directory = "out"
[model]
layers = 2
hidden = 48
heads = 3
sequence = 64
vocabulary = 257
[batch]
global = 96
micro = 1
[data]
train = "tokens.h5"
"""
STAND_IN = """#!/bin/bash
echo "$(basename "$0") $*" >> "$NOTES"
case $(basename "$0") in
  srun | mpiexec) ;;
  flux) [ "$1" = run ] || exit 0 ;;
  *) exit 0 ;;
esac
[ -z "$SAVES" ] || { mkdir -p out/checkpoints; echo "$SAVES" > out/checkpoints/latest; }
[ -z "$SUSPECTS" ] || { mkdir -p out; printf "%b" "$SUSPECTS" >> out/suspect_hosts; }
exit "$CODE"
"""
bin_folder = None  # with trireme, set by the program


class Scripts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="trireme-job-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        (self.folder / "deck.toml").write_text(DECK)

    def call(self, *arguments):
        """Runs tools/job in a copy of this process, which has read its modules already: hundreds of calls take a tenth
        of the time."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            child = os.fork()
            if child == 0:
                os._exit(self.run_here(arguments, out, errors))
            status = os.waitpid(child, 0)[1]
            out.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status), out.read(), errors.read())

    def run_here(self, arguments, out, errors):
        """The exit code of tools/job."""
        code = 1
        try:
            os.chdir(self.folder)
            os.environ["PATH"] = f"{bin_folder}:{os.environ['PATH']}"
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
            sys.argv = [str(JOB), "deck.toml", *arguments]
            runpy.run_path(str(JOB), run_name="__main__")
        except SystemExit as end:  # whose code is None, a number or a message
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        return code

    def printed(self, *arguments):
        said = self.call(*arguments)
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        return said.stdout

    def refused(self, part, *arguments):
        said = self.call(*arguments)
        self.assertEqual((said.returncode, said.stdout), (2, ""), said.stdout)
        self.assertIn(part, said.stderr)
        self.assertNotIn("Traceback", said.stderr)
        return said.stderr

    def built_with(self, kokkos, mpi="MPICH 4.2"):
        """Arguments that name a trireme of such libraries, which accepts every deck."""
        program = self.folder / "stub/trireme"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && printf "trireme 1\\nKokkos 4.6.0 {kokkos}\\nMPI {mpi}\\n"\nexit 0\n')
        program.chmod(0o755)
        return ["--trireme", str(program)]

    def run_script(self, text, code, saves="", suspects="", stand_in=STAND_IN):
        """(exit code, what the stand-ins were called with, output) of a script whose launcher ends with `code`."""
        stand_ins, notes = self.folder / "stand-ins", self.folder / "notes"
        stand_ins.mkdir(exist_ok=True)
        for name in ("srun", "mpiexec", "flux", "qsub", "sbatch", "scontrol", "trireme"):
            (stand_ins / name).write_text(stand_in)
            (stand_ins / name).chmod(0o755)
        # Without accounting, sacct fails.
        (stand_ins / "sacct").write_text('#!/bin/sh\n[ -n "$STEPS" ] || exit 1\nprintf "%b" "$STEPS"\n')
        (stand_ins / "sacct").chmod(0o755)
        notes.write_text("")
        environment = dict(os.environ, NOTES=str(notes), CODE=str(code), SAVES=saves, SUSPECTS=suspects, SLURM_JOB_ID="17",
                           PBS_O_WORKDIR=str(self.folder))
        # The script puts trireme's folder first; the stand-ins have to come before that.
        path = f"export PATH={shlex.quote(str(stand_ins))}:$PATH\ndeck="
        self.assertEqual(text.count("\ndeck="), 1)
        said = subprocess.run(["bash", "-c", text.replace("\ndeck=", "\n" + path)], cwd=self.folder, env=environment,
                              capture_output=True, text=True)
        return said.returncode, notes.read_text().splitlines(), said.stdout + said.stderr
