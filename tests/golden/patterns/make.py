#!/usr/bin/env python3
"""Writes golden.json: patterns, texts, and the pieces that `tokenizers` 0.23.3 (Oniguruma) splits the
texts into. tests/data/test_patterns.cpp reads it."""
import json
import pathlib

import tokenizers
from tokenizers import Regex, pre_tokenizers

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
PATTERNS = [
    GPT2, LLAMA3, GPT4O, KIMI, BLOOM,
    # properties: scripts, long names, negation; sets that differ between brackets and the outside
    r"\p{Han}+", r"[\p{Katakana}]+", r"\P{Devanagari}+", r"\p{^Arabic}+", r"[\p{Thai}\p{greek}]+", r"\p{Hira}|\p{Hang}+",
    r"\p{Uppercase_Letter}+", r"\p{ decimal-number }+", r"\p{LC}+", r"\w+", r"[\w]+", r"\W+", r"[[:punct:]]+", r"\p{Punct}+",
    r"[[:^alpha:]]+", r"\h+", r"\H+", r"\s", r"[^\S\n]+", r"\d{2}", r"\N+", r"\O\O", r"\R", r".+", r"(?m:.+)", r"\u0061|\x{62}|\x63",
    # sets of sets
    r"[a-z&&[^aeiou]]+", r"[^a-z&&[^aeiou]]+", r"[ab[^c-z]]+", r"[^ab[c]]+", r"[\p{L}&&\p{Lu}&&[^A-F]]", r"[-a]+", r"[a\-z-]+", r"[!s]+",
    # quantifiers
    r"\p{N}{1}\p{N}{,2}", r"a{2}", r"b{1,2}+", r"a{,2}b", r"x{,}", r"x{ 1}", r"x{1", r"a{3,1}", r"a{3,1}a", r"a++b", r"a?+a", r"a*+b",
    r"(?:a+)+b", r"(?:a+?)+b", r"a+?b??", r"1{2}3{2}", r"(?>a|ab)b", r"ab{2}?a", r"(?:ab){2,}?",
    # options, groups, comments, ends
    r"(?i)k", r"a(?i)b|c", r"(?i:[k-s])+", r"(?i:σ)", r"(?i:a(?-i:B))", r"(?x: a b # note" + "\n" + r" +)", r"a(?#note)+", r"(?<word>a)b",
    r"(?mi:A.)", r"b$", r"\n\z", r"b\Z", r"a(?!b)", r"a(?=b)",
]
TEXTS = [
    "Hello, World! it's IT'S 12345 a1b2\r\n\n  x", "日本、日本語。タ ー アイ・ヽ 漢字kanji", "त। हिन्दी॥ १२३ ०", "Ελλάδα ΣΊΣΥΦΟΣ σς ͅ ", "Привет, Ёж! 7",
    "مرحبا، ١٢٣؛ أ", "ภาษาไทย ๑๒ กิ่", "aab aaab aaaab ab abab abB aB Ab ABC aC C", "k K \u212a s \u017f ß ss ﬆ",
    "x{,} x{ 1} x{1 x", "a\nb\r\nb\x85\u2028b\n", "1122333 ²½Ⅷ① $+<=>^`|~ !?", "\u00a0\u3000 \t!!s--''az\u200d", "한글 ひらがな 12ff 12FG",
]


def main():
    cases = []
    for pattern in PATTERNS:
        splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
        cases.append({"pattern": pattern, "pieces": [[piece for piece, _ in splitter.pre_tokenize_str(text)] for text in TEXTS]})
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    golden = f'{{"tokenizers": "{tokenizers.__version__}",\n"texts": {json.dumps(TEXTS, ensure_ascii=False)},\n"cases": [\n{lines}\n]}}\n'
    (pathlib.Path(__file__).parent / "golden.json").write_text(golden, encoding="utf-8")


if __name__ == "__main__":
    main()
