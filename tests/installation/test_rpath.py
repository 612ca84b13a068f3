#!/usr/bin/env python3
"""A program that is installed with Trireme's settings finds a library in a foreign prefix, also after the installation moved,
and its module files load the modules of the build.

    test_rpath.py --cmake cmake --cc cc
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
options = None


class Rpath(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="trireme-rpath-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def call(self, *command):
        said = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(said.returncode, 0, said.stdout)

    def install(self, project, prefix, *settings):
        build = self.folder / f"build-{project}"
        self.call(options.cmake, "-S", ROOT / "tests/installation/foreign_library" / project, "-B", build,
                  f"-DCMAKE_C_COMPILER={options.cc}", *settings)
        self.call(options.cmake, "--build", build)
        self.call(options.cmake, "--install", build, "--prefix", prefix)
        shutil.rmtree(build)

    def test_an_installed_program_finds_a_library_in_a_foreign_prefix(self):
        self.install("library", self.folder / "foreign")
        self.install("program", self.folder / "first", f"-Dforeign_ROOT={self.folder / 'foreign'}", f"-DTRIREME_SOURCE={ROOT}")
        (self.folder / "first").rename(self.folder / "moved")
        environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        said = subprocess.run([self.folder / "moved/bin/program"], env=environment, capture_output=True, text=True)
        self.assertEqual((said.returncode, said.stderr), (0, ""))

    def test_module_files_load_the_modules_of_the_build(self):
        self.install("library", self.folder / "foreign")
        self.install("program", self.folder / "first", f"-Dforeign_ROOT={self.folder / 'foreign'}", f"-DTRIREME_SOURCE={ROOT}",
                     "-DTRIREME_MODULES=cray-mpich/8.1.30;cray-hdf5")
        modules = self.folder / "first/share/modulefiles/trireme"
        self.assertIn('\ndepends_on("cray-mpich/8.1.30")\ndepends_on("cray-hdf5")\nprepend_path(', (modules / "1.2.3.lua").read_text())
        self.assertIn("\nmodule load cray-mpich/8.1.30\nmodule load cray-hdf5\nprepend-path ", (modules / "1.2.3").read_text())

    def test_the_build_uses_these_settings_for_all_targets(self):
        lines = (ROOT / "CMakeLists.txt").read_text().splitlines()
        self.assertLess(lines.index("include(TriremeInstall)"), lines.index("add_subdirectory(src)"))
        for path in [ROOT / "CMakeLists.txt", *(ROOT / "src").rglob("CMakeLists.txt"), ROOT / "tools/trace/CMakeLists.txt"]:
            self.assertNotRegex(path.read_text(), "INSTALL_RPATH|SKIP_RPATH", f"{path} changes the settings")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--cc", default="cc")
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
