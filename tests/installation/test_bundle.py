#!/usr/bin/env python3
"""tools/bundle and the report inside a bundle.

    test_bundle.py --build FOLDER [--cc cc]

Packs the build, trains on 2 ranks in a root folder that has the bundle, glibc and a shell alone, and runs a part of
device_report.py, which is killed and continues. Toy programs show which missing libraries are refused. Ends with 77 where
patchelf is missing; the root folder needs the right to mount in a namespace of its own, without which its test is skipped.
"""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
options = None


def loaded(name, path):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def output_of(*words, code=0, **keywords):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **keywords)
    if done.returncode != code:
        raise AssertionError(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Toy(unittest.TestCase):
    """A program and libraries of one function each, packed by the tool's own functions."""

    def setUp(self):
        self.tool = loaded("bundle_tool", ROOT / "tools/bundle")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        for name, needs in (("libinner.so.1", []), ("libouter.so.2", ["libinner.so.1"]), ("libcudart.so.13", []),
                            ("libcuda.so.1", [])):
            self.library(name, needs)
        self.program = self.folder / "program"
        self.compile("int outer2(void); int cudart13(void); int cuda1(void); int main(void) "
                     "{ return outer2() + cudart13() + cuda1(); }", self.program,
                     ["libouter.so.2", "libcudart.so.13", "libcuda.so.1"])

    def compile(self, text, target, needs, *words):
        source = self.folder / "source.c"
        source.write_text(text)
        output_of(options.cc, source, "-o", target, *words, *(self.folder / name for name in needs),
                  f"-Wl,-rpath,{self.folder}", f"-Wl,-rpath-link,{self.folder}")

    def library(self, name, needs):
        function = name.removeprefix("lib").replace(".so.", "")
        calls = "".join(f" + {need.removeprefix('lib').replace('.so.', '')}()" for need in needs)
        declared = "".join(f"int {need.removeprefix('lib').replace('.so.', '')}(void); " for need in needs)
        self.compile(f"{declared}int {function}(void) {{ return 0{calls}; }}", self.folder / name, needs, "-shared", "-fPIC",
                     f"-Wl,-soname,{name}")

    def packed(self, *include):
        target = self.folder / "bundle"
        libraries = self.tool.Libraries(include)
        libraries.add_needed(self.program)
        self.tool.add_program(self.program, target / "bin/program", target)
        for name, path in libraries.packed.items():
            self.tool.add_program(path, target / "lib" / name, target)
        return target, libraries

    def test_dependencies_are_packed_and_device_libraries_are_not(self):
        folder, libraries = self.packed()
        self.assertEqual(sorted(libraries.packed), ["libinner.so.1", "libouter.so.2"])
        self.assertEqual(libraries.left_out, {"libc.so.6": "glibc", "libcudart.so.13": "device library",
                                              "libcuda.so.1": "driver"})
        self.assertGreaterEqual(tuple(map(int, self.tool.check_elf_files(folder, libraries).split("."))), (2, 17))

    def test_a_device_library_is_packed_on_request(self):
        self.assertEqual(sorted(self.packed("cudart")[1].packed), ["libcudart.so.13", "libinner.so.1", "libouter.so.2"])

    def test_programs_run_in_a_moved_folder_without_the_originals(self):
        folder, _ = self.packed("cudart")
        shutil.copy(self.folder / "libcuda.so.1", folder / "lib")  # as the driver's package would
        with tempfile.TemporaryDirectory() as other:
            shutil.move(folder, Path(other) / "moved")
            for library in self.folder.glob("lib*"):
                library.unlink()
            (self.folder / "libouter.so.2").write_text("not a library")
            output_of(Path(other) / "moved/bin/program", env={"LD_LIBRARY_PATH": str(self.folder)})

    def test_a_missing_library_is_reported_with_its_user(self):
        (self.folder / "libinner.so.1").unlink()
        folder, libraries = self.packed()
        with self.assertRaises(self.tool.Mistake) as caught:
            self.tool.check_elf_files(folder, libraries)
        self.assertIn("lib/libouter.so.2 needs libinner.so.1, which is neither packed nor allowed", str(caught.exception))


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name) / "bundle"
        cls.said = output_of(sys.executable, "-B", ROOT / "tools/bundle", options.build, "-o", cls.folder,
                             "--models", "gpt,llama,t5")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def report(self, *words):
        return [sys.executable, str(self.folder / "tests/bench/device_report.py"), "-o", str(self.folder / "report"), *words]

    def results(self):
        path = self.folder / "report/results.json"
        return json.loads(path.read_text()) if path.exists() else {"steps": {}, "begun": {}}

    def bare_system(self):
        """A root folder with glibc and a shell; a command that runs a line of shell in it."""
        root = Path(self.temporary.name) / "root"
        for name in ("bin", "proc", "dev", "sys", "tmp", "opt"):
            (root / name).mkdir(parents=True)
        shutil.copy(Path("/bin/sh").resolve(), root / "bin/sh")
        tool = loaded("bundle_tool", ROOT / "tools/bundle")
        files = [path for name, path in tool.cached_libraries().items() if tool.GLIBC.fullmatch(name)]
        for path in {*files, "/lib64/ld-linux-x86-64.so.2"}:
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(path).resolve(), root / path[1:])
        shutil.copytree(self.folder, root / "opt/moved")
        mounts = "".join(f"mount --rbind /{name} '{root}/{name}' && " for name in ("proc", "dev", "sys"))
        return root, lambda line: ["unshare", "--map-root-user", "--mount", "sh", "-c",
                                   f'{mounts} exec chroot \'{root}\' /bin/sh -c "$0"', line]

    def test_a_system_with_only_glibc_trains_on_two_ranks(self):
        tried = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", "mount --rbind /proc /mnt && chroot / true"],
                               capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(f"no right to mount in a namespace: {tried.stderr.strip()}")
        root, inside = self.bare_system()
        output_of(*inside("exec /opt/moved/bin/trireme --version"))
        said = output_of(*inside("cd /opt/moved && bin/trireme check inputs/tiny.toml data.train=data/tokens.h5 --ranks 2 && "
                                 "bin/mpiexec -n 2 bin/trireme train inputs/tiny.toml data.train=data/tokens.h5 "
                                 "run.directory=/opt/run && bin/trireme eval /opt/run/deck.toml --data data/tokens.h5 && "
                                 "bin/trireme help deck && bin/trireme inspect --verify data/tokens.h5"))
        self.assertIn("trireme: 2 ranks", said)
        lines = [json.loads(line) for line in (root / "opt/run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(lines[-1]["step"], 20)
        # The same losses as outside, with the build's own programs.
        outside = Path(self.temporary.name) / "outside"
        output_of(options.mpiexec, "-n", "2", options.build / "bin/trireme", "train", ROOT / "inputs/tiny.toml",
                  f"data.train={self.folder}/data/tokens.h5", f"run.directory={outside}")
        expected = [json.loads(line)["loss"] for line in (outside / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["loss"] for line in lines], expected)
        said = output_of(*inside("/opt/moved/tests/run test_optim test_grid -- --gtest_filter=*olden*:SharedLibrary*"))
        self.assertIn("[  PASSED  ]", said)

    def test_the_summary_names_the_requirements(self):
        self.assertIn("not packed, glibc: ", self.said)
        self.assertRegex(self.said, r"libraries packed; needs glibc 2\.\d+ or newer")
        again = subprocess.run([sys.executable, "-B", str(ROOT / "tools/bundle"), str(options.build), "-o", str(self.folder)],
                               capture_output=True, text=True)
        self.assertEqual(again.returncode, 1)
        self.assertIn("exists; remove it, or give another name with -o", again.stderr)

    def test_a_killed_report_continues_and_repeats_nothing(self):
        steps = ("machine,wide_runs,family_runs,train_experts,train_t5,train_1_7b,train_124m,bench_1_7b,test_optim,memcheck,"
                 "nccl,trace")
        first = subprocess.Popen(self.report("--only", steps), stdout=subprocess.DEVNULL)
        end = time.monotonic() + 300
        while "wide_runs" not in self.results()["begun"] and time.monotonic() < end:
            self.assertIsNone(first.poll(), "the report ended before it was killed")
            time.sleep(0.05)
        time.sleep(0.3)  # in the middle of a run
        first.send_signal(signal.SIGKILL)
        first.wait()
        killed = self.results()
        self.assertEqual(list(killed["steps"]), ["machine"])
        time.sleep(0.5)
        self.assertEqual(self.processes(), [], "a run outlives the report")
        before = (self.folder / "report/logs/machine.txt").stat().st_mtime_ns
        output_of(*self.report("--only", steps))
        done = self.results()
        self.assertEqual(done["steps"]["machine"], killed["steps"]["machine"])
        self.assertEqual((self.folder / "report/logs/machine.txt").stat().st_mtime_ns, before)
        status = {name: step["status"] for name, step in done["steps"].items()}
        self.assertEqual(status.pop("memcheck"), "absent")
        self.assertEqual(status.pop("nccl"), "absent")
        self.assertEqual(status, dict.fromkeys(status, "done"))
        self.assertEqual(len(status), 10)
        self.assertGreater(done["steps"]["train_1_7b"]["figures"]["tokens_per_second"], 0)
        page = (self.folder / "report/report.md").read_text()
        for part in ("| agreement with the host: llama, fp32 | yes |", "| agreement with the host: t5, fp64 | yes |",
                     "| GPT-2 124M |", "attention.query.forward",
                     "| memcheck | absent |", "| test_train | not run yet |"):
            self.assertIn(part, page)

    def processes(self):
        """Processes of the bundle's programs."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "exe").startswith(str(self.folder)):
                    found.append(os.readlink(entry / "exe"))
            except OSError:
                continue
        return found

    def test_too_little_time_leaves_steps_for_the_next_call(self):
        said = output_of(*self.report("--only", "nccl,test_train", "--seconds", "80"), code=75)
        self.assertIn("left: test_train", said)

    def test_losses_beyond_the_tolerance_are_detected(self):
        path = self.folder / "tests/golden/host_losses.json"
        small = [sys.executable, "-B", self.folder / "tests/bench/small_runs.py", "--bin", self.folder / "bin",
                 "--models", "gpt", "--compare"]
        self.assertNotIn("TOO LARGE", output_of(*small, path))
        for key, size, wrong_types in (("loss", 1e-6, 2), ("gradient_norm", 1e-9, 1)):
            values = json.loads(path.read_text())
            for precision in ("fp64", "fp32"):  # both, so that the tolerance of fp32 stays
                values["gpt"][precision][key][-1] *= 1 + size
            wrong = Path(self.temporary.name) / "wrong.json"
            wrong.write_text(json.dumps(values))
            self.assertEqual(output_of(*small, wrong, code=1).count("TOO LARGE"), wrong_types)

    def test_tests_after_a_failure_are_not_counted_as_skipped(self):
        sys.path.insert(0, str(ROOT / "tests/bench"))
        import device_steps
        text = "[ RUN      ] A.a\n[       OK ] A.a (1 ms)\n[ RUN      ] A.b\n[  SKIPPED ] A.b (0 ms)\n[ RUN      ] A.c\n"
        self.assertEqual(device_steps.outcomes(text, True), {"A.a": "passed", "A.b": "skipped", "A.c": "failed"})
        self.assertEqual(device_steps.outcomes(text, False), {"A.a": "passed", "A.b": "skipped"})
        text += "[  FAILED  ] A.c (2 ms)\n[ RUN      ] A.d\n[  SKIPPED ] A.d (0 ms)\n"
        self.assertEqual(device_steps.outcomes(text, True), {"A.a": "passed", "A.b": "skipped", "A.c": "failed"})

    def test_all_steps_take_25_minutes_and_the_first_ones_8(self):
        sys.path.insert(0, str(ROOT / "tests/bench"))
        import device_steps
        names = [name for name, _, _ in device_steps.STEPS]
        limits = [limit for _, limit, _ in device_steps.STEPS]
        first = names.index("test_kernels") + 1
        self.assertLessEqual(sum(limits), 25 * 60)
        self.assertLessEqual(sum(limits[:first]), 8 * 60)
        self.assertLessEqual({"wide_runs", "narrow_runs", "bench_1_7b", "train_1_7b", "train_124m"}, set(names[:first]))
        self.assertEqual(len(set(names)), len(names))


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--mpiexec", default="mpiexec")
    options, rest = parser.parse_known_args()
    options.build = options.build.resolve()
    missing = [tool for tool in ("patchelf", "objdump", "strip", "xz") if shutil.which(tool) is None]
    if missing:
        print(f"skipped: no {', '.join(missing)}")
        return SKIPPED
    sys.dont_write_bytecode = True
    return int(not unittest.main(argv=[sys.argv[0], "-v", *rest], exit=False).result.wasSuccessful())


if __name__ == "__main__":
    sys.exit(main())
