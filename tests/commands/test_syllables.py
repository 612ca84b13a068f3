#!/usr/bin/env python3
"""tools/syllables: pairs from a dictionary, held-out words, and scores of texts.

    test_syllables.py
"""
import gzip
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = r'''Abdicate \Ab"di*cate\, v. t. [imp. & p. p. {Abdicated}; p. pr. &
   vb. n. {Abdicating}.]
   1. To surrender or relinquish.

Abdication \Ab`di*ca"tion\ ([a^]b`d[i^]*k[=a]"sh[u^]n), n.
   1. The act of abdicating.

Act \Act\ ([a^]kt), n.
   1. That which is done.

Aboard \A*board"\, adv.
   1. On board.

Nation \Na"tion\, n.
   1. A people.

Caution \Cau"tion\, n.
   1. A warning.

Station \Sta"tion\, n.
   1. A place.
'''


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Syllables(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="trireme-syllables-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.dictionary = self.folder / "gcide.dict.dz"
        more = "".join(f"{stem.capitalize()}tion \\{stem.capitalize()}\"tion\\, n.\n   1. A word.\n\n"
                       for stem in (a + b + c for a in "bcdfglmnprst" for b in "aeiou" for c in "abcdefgl"))
        with gzip.open(self.dictionary, "wt") as out:
            out.write(ENTRIES + "\n" + more)

    def run_tool(self, *words, code=0):
        done = subprocess.run([sys.executable, ROOT / "tools/syllables", self.folder / "out", *words],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def make(self):
        self.run_tool("--dictionary", self.dictionary)
        return lines_of(self.folder / "out/train.jsonl"), lines_of(self.folder / "out/held_out.jsonl")

    def test_every_divided_word_is_in_one_of_two_files(self):
        train, held_out = self.make()
        pairs = {line["source"]: line["target"] for line in train + held_out}
        self.assertEqual(len(pairs), len(train) + len(held_out))
        self.assertEqual(pairs["abdicate"], "ab\"di*cate")
        self.assertEqual(pairs["abdication"], "ab`di*ca\"tion")
        self.assertEqual(pairs["aboard"], "a*board\"")
        self.assertNotIn("act", pairs)
        self.assertGreater(len(held_out), 5)
        self.assertGreater(len(train), 10 * len(held_out))
        self.assertFalse({line["source"][:5] for line in train} & {line["source"][:5] for line in held_out})
        prompts = {line["prompt"] for line in lines_of(self.folder / "out/prompts.jsonl")}
        self.assertEqual(prompts, {line["source"] for line in held_out})

    def test_texts_are_compared_with_the_dictionary(self):
        _, held_out = self.make()
        texts = self.folder / "texts.jsonl"
        texts.write_text("".join(json.dumps({"prompt": line["source"], "text": line["target"] if i else "x"}) + "\n"
                                 for i, line in enumerate(held_out)))
        n = len(held_out)
        said = self.run_tool("--score", texts).stdout
        self.assertEqual(said, f"{n - 1} of {n} words are divided as in the dictionary, "
                               f"not more than the {n} by the longest ending\n")

    def test_mistakes_are_one_line(self):
        self.make()
        texts = self.folder / "texts.jsonl"
        texts.write_text('{"prompt": "nobody", "text": "no"}\n')
        self.assertIn("the prompt 'nobody' is not in", self.run_tool("--score", texts, code=2).stderr)
        with gzip.open(self.dictionary, "wt") as out:
            out.write("no entries\n")
        said = self.run_tool("--dictionary", self.dictionary, code=2).stderr
        self.assertIn("expected Debian's dict-gcide", said)
        self.assertEqual(said.count("\n"), 1)
        self.assertIn("No such file", self.run_tool("--dictionary", "/nowhere", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
