#!/usr/bin/env python3
"""What `cmake --install` puts into a prefix: programs, scripts that start, pages whose links lead somewhere, sites and decks.

    test_content.py --build BUILD [--cmake cmake]
"""
import argparse
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = ("trireme-job", "trireme-calibrate", "trireme-tensorboard")
options = None


class Content(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prefix = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="trireme-prefix-")))
        said = subprocess.run([options.cmake, "--install", options.build, "--prefix", cls.prefix], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        assert said.returncode == 0, said.stdout
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--cmake", default="cmake")
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
