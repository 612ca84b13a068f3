#!/usr/bin/env python3
"""What `cmake --install` puts into a prefix: programs, scripts that start, pages whose links lead somewhere, sites and decks,
module files.

    test_content.py --build BUILD [--cmake cmake]
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = ("trireme-job", "trireme-calibrate", "trireme-tensorboard")
LMOD = Path("/usr/share/lmod/lmod/libexec/lmod")  # Debian's packages
MODULES = Path("/usr/lib/x86_64-linux-gnu/modulecmd.tcl")
options = None


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prefix = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="trireme-prefix-"))) / "first"
        said = subprocess.run([options.cmake, "--install", options.build, "--prefix", cls.prefix], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        assert said.returncode == 0, said.stdout


class Content(Installed):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.doc, = (path.parent for path in cls.prefix.rglob("README.md") if "share/doc" in str(path))

    def test_links_of_installed_pages_lead_to_installed_files(self):
        pages = sorted(self.doc.rglob("*.md"))
        self.assertGreater(len(pages), 30)
        links = 0
        for page in pages:
            for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
                if not re.match(r"https?:|mailto:", link):
                    links += 1
                    self.assertTrue((page.parent / link).exists(), f"{page.relative_to(self.doc)} links to {link}")
        self.assertGreater(links, 100)

    def test_scripts_start_under_their_installed_names(self):
        for name in SCRIPTS:
            said = subprocess.run([self.prefix / "bin" / name, "--help"], capture_output=True, text=True)
            self.assertEqual((said.returncode, said.stderr), (0, ""), name)
            self.assertIn(f"usage: {name} ", said.stdout)
            self.assertNotIn("tools/", said.stdout)

    def test_scripts_have_manual_pages_and_completions(self):
        for name in SCRIPTS:
            page = (self.prefix / f"share/man/man1/{name}.1").read_text()
            self.assertIn(f".TH {name.upper()} 1", page)
            said = subprocess.run([self.prefix / "bin" / name, "--help"], capture_output=True, text=True).stdout
            options_of_help = set(re.findall(r"^  (?:-.*, )?(--[a-z][a-z-]+)", said, re.MULTILINE))
            self.assertGreaterEqual(len(options_of_help), 1)
            for option in options_of_help:
                self.assertIn(option.replace("-", "\\-"), page, f"{name}.1")
            completion = (self.prefix / f"share/bash-completion/completions/{name}").read_text()
            for option in options_of_help:
                self.assertIn(option, completion, name)
            self.assertEqual(subprocess.run(["bash", "-n"], input=completion, text=True).returncode, 0)

    def test_trireme_has_manual_pages_completions_and_schemas(self):
        for name in ("man/man1/trireme.1", "man/man5/trireme-deck.5", "bash-completion/completions/trireme",
                     "zsh/site-functions/_trireme", "fish/vendor_completions.d/trireme.fish", "trireme/deck.schema.json"):
            self.assertTrue((self.prefix / "share" / name).is_file(), name)

    def test_sites_and_decks_are_found_by_name(self):
        deck = self.prefix / "share/trireme/inputs/quickstart.toml"
        said = subprocess.run([self.prefix / "bin/trireme-job", deck, "--ranks-per-node", "1", "--time", "01:00:00"],
                              capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("trireme-job", said.stdout)
        for site in ("alps", "lumi", "perlmutter"):
            self.assertTrue((self.prefix / f"share/trireme/sites/{site}.toml").is_file())
        self.assertEqual(list(self.prefix.rglob("__pycache__")), [])


class ModuleFiles(Installed):
    """Loaded by Lmod, which also reads Tcl, and by Environment Modules: whichever is installed."""

    def test_the_program_starts_after_module_load(self):
        self.check_all(self.prefix / "share/modulefiles", self.prefix)

    def test_a_moved_installation_is_found(self):
        shutil.copytree(self.prefix, self.prefix.parent / "moved")
        self.check_all(self.prefix.parent / "moved/share/modulefiles", self.prefix.parent / "moved")

    def test_a_copy_of_the_module_file_finds_the_installation(self):
        shutil.copytree(self.prefix / "share/modulefiles", self.prefix.parent / "modules")
        self.check_all(self.prefix.parent / "modules", self.prefix)

    def check_all(self, folder, prefix):
        names = sorted(path.name for path in (folder / "trireme").iterdir())
        self.assertEqual(len(names), 2)
        self.assertEqual(f"{names[0]}.lua", names[1])
        commands = [["lua5.3", LMOD], ["tclsh", MODULES]]
        commands = [command for command in commands if shutil.which(command[0]) and command[1].exists()]
        if not commands:
            self.skipTest("neither Lmod nor Environment Modules is installed")
        for command in commands:
            self.check_load(command, folder, prefix)
            if command[1] == LMOD:
                with tempfile.TemporaryDirectory(dir=folder.parent) as other:  # a place that is not that of an installation
                    (Path(other) / "trireme").mkdir()
                    shutil.copy(folder / "trireme" / names[0], Path(other) / "trireme")
                    self.check_load(command, Path(other), self.prefix)

    def check_load(self, command, folder, prefix):
        environment = {"MODULEPATH": str(folder), "PATH": os.environ["PATH"], "HOME": str(self.prefix.parent)}
        said = subprocess.run([*command, "bash", "load", "trireme"], env=environment, capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        shown = subprocess.run(["bash", "-c", f'{said.stdout}\necho "$(command -v trireme) $TRIREME_ROOT $MANPATH"'],
                               env=environment, capture_output=True, text=True)
        program, root, manuals = shown.stdout.split("\n")[-2].split(" ")
        self.assertEqual((program, root), (f"{prefix}/bin/trireme", str(prefix)), said.stdout + said.stderr)
        self.assertRegex(manuals, f"^{re.escape(str(prefix))}/share/man:", "the system's manual pages follow")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--cmake", default="cmake")
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
