#!/usr/bin/env python3
"""Compares splits of random patterns on random texts with those of `tokenizers` (Oniguruma). By hand:

    cmake --build build/host --target split_texts
    python3 tests/fuzz/compare_patterns.py build/host/bin/split_texts --patterns 2000 --texts 200

Patterns that Oniguruma or Trireme rejects are counted by reason and do not count as patterns. Any
difference ends the script with exit code 1.
"""
import argparse
import collections
import json
import random
import re
import subprocess
import sys

from tokenizers import Regex, pre_tokenizers

SCRIPTS = {
    "Latin": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZßéÉñſKİıﬀﬆøØ",
    "Greek": "αβγδσςΣΩωΐάϑθιͅ",
    "Cyrillic": "абвгдежзАБВГДЖЗёЁ",
    "Arabic": "ابتثجحخ،؛ـ٣٤",
    "Devanagari": "अआकखगत।॥िा०१",
    "Han": "漢字本日語、。々〇",
    "Katakana": "アイウカキータナ・ヽ",
    "Thai": "กขคงจฉชิ่๑๒",
}
COMMON = "0123456789 0123 \t\n\r\u00a0\u0085\u2028\u3000.,;:!?'\"-_()[]{}&^$|*+#/\\~ʼ…–²½①😀\u200d\u0301"
CATEGORIES = ["L", "Lu", "Ll", "Lo", "M", "Mn", "N", "Nd", "P", "Pc", "S", "Sc", "Z", "Zs", "C", "Cc", "Letter",
              "Uppercase_Letter", "LC", "Alpha", "Alnum", "Punct", "Space", "Word", "Upper", "Lower", "Alphabetic"]
POSIX = ["alpha", "digit", "alnum", "upper", "lower", "space", "punct", "word", "xdigit", "blank", "cntrl", "ascii"]


class Patterns:
    """Random patterns, of constructs that the parser knows and of a few that it rejects."""

    def __init__(self, source):
        self.random = source

    def choose(self, *weighted):
        return self.random.choices([make for _, make in weighted], [weight for weight, _ in weighted])[0]()

    def character(self):
        script = self.random.choice(list(SCRIPTS))
        return self.random.choice(SCRIPTS[script] if self.random.random() < 0.5 else "abst 01,.'-_\n\rn")

    def literal(self, inside=False):
        c = self.character()
        special = "\\[]^-&" if inside else "\\[](){}*+?.^$|"
        roll = self.random.random()
        if c in special or (roll < 0.1 and not (c.isalnum() and c.isascii()) and c != "_"):
            return "\\" + c
        if roll < 0.2:
            return "\\x{%x}" % ord(c)
        if roll < 0.25 and ord(c) < 0x10000:
            return "\\u%04x" % ord(c)
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(c, c)

    def property(self):
        name = self.random.choice(CATEGORIES + list(SCRIPTS) * 2)
        if self.random.random() < 0.1:
            name = name.lower().replace("_", " ")
        return self.choose((8, lambda: f"\\p{{{name}}}"), (2, lambda: f"\\P{{{name}}}"), (1, lambda: f"\\p{{^{name}}}"))

    def escape(self, inside=False):
        return "\\" + self.random.choice("sSdDwWhH" if inside else "sSdDwWhHRNO")

    def range(self):
        low, high = self.random.choice([("a", "z"), ("A", "Z"), ("0", "9"), ("α", "ω"), ("а", "я"), ("\\x{4e00}", "\\x{9fff}"),
                                        ("ァ", "ヶ"), ("!", "/"), ("à", "ö"), ("ก", "ฮ"), ("\\x00", "\\x20")])
        return f"{low}-{high}"

    def posix(self):
        return f"[:{self.random.choice(['', '', '^'])}{self.random.choice(POSIX)}:]"

    def set(self, levels=2):
        def union():
            parts = [self.choose((5, lambda: self.literal(True)), (3, self.range), (3, self.property), (3, lambda: self.escape(True)),
                                 (1, self.posix), (2 if levels else 0, lambda: self.set(levels - 1)))
                     for _ in range(self.random.randint(1, 4))]
            return self.random.choice(["", "", "", "", "-"]) + "".join(parts) + self.random.choice(["", "", "", "", "-"])
        operands = [union() for _ in range(self.random.choice([1, 1, 1, 1, 2, 3]))]
        return "[" + self.random.choice(["", "", "^"]) + "&&".join(operands) + "]"

    def group(self, levels):
        begin = self.random.choice(["(?:", "(?:", "(", "(?>", "(?i:", "(?i:", "(?-i:", "(?m:", "(?=", "(?!", "(?<name>", "(?x: ",
                                    "(?i)", "(?#note)", "(?mi-x:", "(?<=", "(?~"])
        if begin in ("(?i)", "(?#note)"):
            return begin + self.sequence(levels - 1)
        return begin + self.alternatives(levels - 1) + ")"

    def anchor(self):
        return self.random.choice(["$", "\\z", "\\Z", "^", "\\b", "\\G"] if self.random.random() < 0.3 else ["$", "\\z", "\\Z"])

    def quantifier(self):
        low = self.random.randint(0, 3)
        high = low + self.random.randint(0, 2)
        return self.choose((4, lambda: self.random.choice("*+?")), (1, lambda: self.random.choice(["*?", "+?", "??", "*+", "++", "?+"])),
                           (1, lambda: f"{{{low}}}"), (1, lambda: f"{{{low},}}"), (1, lambda: f"{{{low},{high}}}"),
                           (1, lambda: f"{{,{high}}}"), (0.4, lambda: f"{{{high},{low}}}"), (0.2, lambda: "{,}"), (0.2, lambda: "{ 1}"),
                           (0.5, lambda: f"{{{low},{high}}}" + self.random.choice("?+*")), (0.4, lambda: f"{{{low}}}" + self.random.choice("?+")))

    def sequence(self, levels):
        parts = []
        for _ in range(self.random.randint(1, 4)):
            part = self.choose((5, self.literal), (4, self.set), (3, self.property), (3, self.escape), (1, lambda: "."),
                               (0.7, self.anchor), (3 if levels else 0, lambda: self.group(levels)))
            if self.random.random() < 0.4:
                part += self.quantifier()
                if self.random.random() < 0.05:
                    part += self.random.choice("+?*")
            parts.append(part)
        return "".join(parts)

    def alternatives(self, levels=3):
        return "|".join(self.sequence(levels) for _ in range(self.random.choice([1, 1, 1, 2, 3])))


def random_text(source, pattern):
    """Runs of scripts and common characters, with literals of the pattern."""
    letters = [c for c in pattern if c not in "\\[](){}*+?.^$|"]
    parts = []
    for _ in range(source.randint(1, 12)):
        pool = source.choice([COMMON, COMMON, letters or COMMON] + list(SCRIPTS.values()))
        run = "".join(source.choice(pool) for _ in range(source.randint(1, 5)))
        parts.append(run * source.choice([1, 1, 1, 2]))
    return "".join(parts)


def expected(pattern, texts):
    splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
    return [[piece for piece, _ in splitter.pre_tokenize_str(text)] for text in texts]


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def split(self, pattern, texts):
        self.process.stdin.write(json.dumps({"pattern": pattern, "texts": texts}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def reason(error, pattern):
    error = error.replace(f"pattern = '{pattern}': ", "", 1)
    return re.sub(r" \('.*", "", error, flags=re.S)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--patterns", type=int, default=2000)
    arguments.add_argument("--texts", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    source = random.Random(options.seed)
    patterns, ours = Patterns(source), Ours(options.program)
    compared, differences, invalid, rejected, pieces = 0, 0, collections.Counter(), collections.Counter(), 0
    while compared < options.patterns:
        pattern = patterns.alternatives()
        texts = [random_text(source, pattern) for _ in range(options.texts)]
        try:
            Regex(pattern)
        except Exception as error:
            invalid[re.sub(r"[<{].*", "", str(error))] += 1
            continue
        answer = ours.split(pattern, texts)
        if "error" in answer:
            rejected[reason(answer["error"], pattern)] += 1
            continue
        try:
            want = expected(pattern, texts)
        except BaseException as error:  # a panic: Oniguruma's limit of retries
            if type(error).__name__ != "PanicException":
                raise
            invalid["a search that ends in a panic"] += 1
            continue
        compared += 1
        pieces += sum(map(len, want))
        wrong = [i for i in range(len(texts)) if want[i] != answer["pieces"][i]]
        if wrong:
            differences += 1
            shortest = min(wrong, key=lambda i: len(texts[i]))
            print("DIFFERENCE", repr(pattern), repr(texts[shortest]), "\n  tokenizers", want[shortest], "\n  trireme   ",
                  answer["pieces"][shortest], flush=True)
    print(f"{compared} patterns x {options.texts} texts, {pieces} pieces: {differences} patterns differ")
    for title, counts in (("rejected by Trireme", rejected), ("rejected by tokenizers", invalid)):
        print(f"{title}: {sum(counts.values())}")
        for why, count in counts.most_common():
            print(f"  {count:6} {why}")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
