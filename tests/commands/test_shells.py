#!/usr/bin/env python3
"""Completion scripts, manual pages and schemas of the program.

    test_shells.py --bin FOLDER --build FOLDER

bash completes as in a terminal; the pages pass groff's warnings; every deck of inputs/ fits the schema that its first line
names, and that schema is the program's own.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
options = None
try:
    import jsonschema
except ImportError:
    jsonschema = None


def trireme(*words):
    return subprocess.run([options.bin / "trireme", *words], capture_output=True, text=True, check=True).stdout


class Bash(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        cls.script = trireme("completion", "bash")
        (cls.folder / "deck.toml").touch()
        (cls.folder / "notes.txt").touch()
        (cls.folder / "runs").mkdir()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def completed(self, *words):
        """What bash offers for the last word, after it has split the line as a terminal does."""
        words = ["trireme", *words]
        array = " ".join("'" + word + "'" for word in words)
        line = f"COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _trireme; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        done = subprocess.run(["bash", "-c", f'source <("$0" completion bash); {line}', options.bin / "trireme"],
                              cwd=self.folder, capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands_are_completed(self):
        self.assertEqual(self.completed("tok"), ["tokenize"])
        self.assertIn("doctor", self.completed(""))
        self.assertEqual(self.completed("completion", ""), ["bash", "zsh", "fish"])
        self.assertIn("deck", self.completed("help", "de"))

    def test_options_are_completed(self):
        self.assertEqual(self.completed("eval", "--log"), ["--log-likelihoods"])
        self.assertIn("--json", self.completed("inspect", "--"))
        self.assertEqual(self.completed("export", "--dtype", "bf"), ["bf16"])
        self.assertEqual(self.completed("generate", "--chat", "chat"), ["chatml"])
        self.assertEqual(self.completed("eval", "deck.toml", "--checkpoint", ""), ["runs"])
        self.assertEqual(self.completed("generate", "deck.toml", "--tokens", ""), [])

    def test_a_deck_is_followed_by_its_keys(self):
        self.assertEqual(sorted(self.completed("train", "")), ["deck.toml", "runs"])
        self.assertEqual(self.completed("train", "deck.toml", "run.st"), ["run.steps="])
        self.assertEqual(self.completed("check", "runs", "model.layer"), ["model.layers="])

    def test_values_of_keys_are_completed(self):
        self.assertEqual(self.completed("train", "deck.toml", self.choice(), "="), ["stop", "repair"])
        self.assertEqual(self.completed("train", "deck.toml", self.choice(), "=", "re"), ["repair"])
        self.assertEqual(self.completed("train", "deck.toml", "run.directory", "=", "ru"), ["runs"])

    def choice(self):
        """The name of a key that accepts "stop" and "repair"."""
        for section, table in json.loads(trireme("help", "deck", "--schema"))["properties"].items():
            for name, key in table["properties"].items():
                if key.get("enum") == ["stop", "repair"]:
                    return f"{section}.{name}"
        raise AssertionError("no such key")

    def test_every_key_and_command_is_completed(self):
        for section, table in json.loads(trireme("help", "deck", "--schema"))["properties"].items():
            for name in table["properties"]:
                self.assertIn(f"\n{section}.{name}=\n", self.script)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh")
    def test_zsh_reads_its_script(self):
        subprocess.run(["zsh", "-n"], input=trireme("completion", "zsh"), text=True, check=True)

    @unittest.skipUnless(shutil.which("fish"), "no fish")
    def test_fish_reads_its_script(self):
        subprocess.run(["fish", "--no-execute"], input=trireme("completion", "fish"), text=True, check=True)


class Share(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.share = Path(cls.temporary.name) / "share"
        trireme("help", "--share", str(cls.share))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_files_are_installed_for_shells_and_man(self):
        for name in ("man/man1/trireme.1", "man/man1/trireme-train.1", "man/man5/trireme-deck.5",
                     "man/man5/trireme-machine.5", "bash-completion/completions/trireme", "zsh/site-functions/_trireme",
                     "fish/vendor_completions.d/trireme.fish", "trireme/deck.schema.json", "trireme/machine.schema.json"):
            self.assertGreater((self.share / name).stat().st_size, 0, name)

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_manual_pages_have_no_faults(self):
        for page in sorted(self.share.glob("man/*/*")):
            with self.subTest(page=page.name):
                done = subprocess.run(["groff", "-man", "-ww", "-b", "-z", "-Tutf8", page], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_pages_hold_options_keys_and_examples(self):
        def shown(page):
            done = subprocess.run(["groff", "-man", "-Tascii", "-P-c", self.share / page], capture_output=True, text=True,
                                  check=True, env={**os.environ, "GROFF_NO_SGR": "1"})
            return "".join(done.stdout.replace("_\b", "").split("\b"))
        self.assertIn("trireme-tokenize", shown("man/man1/trireme.1"))
        self.assertIn("SYNOPSIS", (self.share / "man/man1/trireme-eval.1").read_text())
        self.assertIn("\\-\\-checkpoint", (self.share / "man/man1/trireme-eval.1").read_text())
        self.assertIn(".B learning_rate", (self.share / "man/man5/trireme-deck.5").read_text())

    def test_schemas_of_inputs_match_the_program(self):
        for topic in ("deck", "machine"):
            own = (self.share / f"trireme/{topic}.schema.json").read_text()
            self.assertEqual(own, trireme("help", topic, "--schema"))
            self.assertEqual(own, (ROOT / f"inputs/{topic}.schema.json").read_text(),
                             f"run: trireme help {topic} --schema > inputs/{topic}.schema.json")


class Installation(unittest.TestCase):
    def test_installed_files_are_complete_and_decks_find_their_schema(self):
        with tempfile.TemporaryDirectory() as prefix:
            done = subprocess.run(["cmake", "--install", options.build, "--prefix", prefix], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            share = Path(prefix) / "share"
            for name in ("man/man1/trireme.1", "man/man5/trireme-deck.5", "bash-completion/completions/trireme",
                         "zsh/site-functions/_trireme", "fish/vendor_completions.d/trireme.fish",
                         "trireme/deck.schema.json", "trireme/sites/generic.toml"):
                self.assertTrue((share / name).is_file(), name)
            for deck in (share / "trireme/inputs").rglob("*.toml"):
                schema = deck.resolve().parent / deck.read_text().split("\n", 1)[0].split()[1]
                self.assertTrue(schema.is_file(), f"{deck}: {schema}")


class Schemas(unittest.TestCase):
    @unittest.skipUnless(jsonschema, "no Python module jsonschema")
    def test_every_input_file_fits_its_schema(self):
        files = sorted((ROOT / "inputs").rglob("*.toml"))
        self.assertGreater(len(files), 20)
        for path in files:
            with self.subTest(path=path.name):
                text = path.read_text()
                first = text.split("\n", 1)[0]
                self.assertTrue(first.startswith("#:schema ."), f"{path}: begins with {first}")
                schema = json.loads((path.resolve().parent / first.split()[1]).read_text())
                self.assertEqual(schema["title"], "Trireme machine file" if "machines" in path.parts else "Trireme deck")
                jsonschema.validate(tomllib.loads(text), schema)

    @unittest.skipUnless(jsonschema, "no Python module jsonschema")
    def test_schemas_reject_mistakes(self):
        schema = json.loads(trireme("help", "deck", "--schema"))
        for deck in ('[run]\nstep = 3', '[run]\nsteps = "3"', '[runs]\n', '[model]\nlayers = 0'):
            with self.subTest(deck=deck), self.assertRaises(jsonschema.ValidationError):
                jsonschema.validate(tomllib.loads(deck), schema)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=lambda path: Path(path).resolve(), required=True)
    parser.add_argument("--build", type=lambda path: Path(path).resolve(), required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
