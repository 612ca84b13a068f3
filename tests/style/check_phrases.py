#!/usr/bin/env python3
"""Finds phrases that make the documents, messages and comments hard to read.

    check_phrases.py [repository]

Reads Markdown pages without their command output, comments and string literals of C++ sources, decks and scripts, and
the names of tests: CamelCase in TEST macros and snake_case in Python. Prints one line per finding with the words to use
instead, and ends with 1 if there is one.
"""
import re
import sys
from pathlib import Path

PHRASES = [(re.compile(pattern), remedy) for pattern, remedy in [
    (r"(?<!left )(?<![-])\bbehind\b", "say after, following or below"),
    (r"\b(?:has|have) not(?=[.,;:)])", "say does not have"),
    (r"\b(?:lies|stands) (?:in|at|on|there|beside|between|where)\b", "say is stored in, or is documented in"),
    (r"\b(?:go|goes|went|gone) on\b", "say continue or resume"),
    (r"\badd(?:s|ed)? up\b", "say sum, or reduce"),
    (r"\bthe one before it\b", "name the thing"),
    (r"^(?:Of|What) \S.*$(?<!\?)", "begin with a noun: \"Total device bytes\", not \"Of what is on the device\""),
]]
# A test's name is a plain claim: "RestartContinuesBitForBit". Its words are separated before they are compared.
NAME_PHRASES = [(re.compile(pattern, re.IGNORECASE), remedy) for pattern, remedy in [
    (r"^(?:of|that|those|these|where|whose|which|who|than|and|without|behind|go(?:es)? on)\b",
     "begin with a noun or an active verb: RejectsShapesAboveTheLimit, not OfShapesAreLimited"),
    (r"\b(?:those|that|as that) of\b", "say matches, or name the thing"),
    (r"\b(?:what|where|whoever|whatever|wherever|whichever|however)\b", "name the thing, or say if, for any, at any"),
    (r"\b(?:than|in|by|from|to|for|of) which\b", "name the thing"),
    (r"\brefus(?:es?|ed)\b", "say rejects or rejected"),
    (r"\bpass(?:es|ed)? over\b", "say skips or ignores"),
    (r"\b(?:comes?|came) back\b", "say reads back, round-trips or is restored"),
    (r"\b(?:go(?:es)? away|went away)\b", "say is removed"),
    (r"\b(?:says?|said) so\b|\bare said\b|\bis said\b", "say reports, with what"),
    (r"\b(?:has|have) not\b", "say does not have"),
    (r"\bpays\b", "say the critical batch size, or is faster"),
    (r"\b(?:(?:is|are) there|there (?:is|are))\b", "say exists, or name the thing first"),
    (r"\bplayed\b", "say simulated"),
    (r"\bformer\b", "say previous"),
    (r"\bblanks?\b", "say spaces"),
    (r"\btorn\b", "say truncated"),
    (r"(?:\S+ ){12}\S", "use at most 12 words"),
]]
TEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)|^\s*def test_(\w+)\(", re.MULTILINE)
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
COMMENT = {"cpp": r"//[/!]?<?\s*(.*)", "hpp": r"//[/!]?<?\s*(.*)", "toml": r"#(.*)", "py": r"#(.*)", "sh": r"#(.*)"}
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def texts(path):
    """Line numbers and pieces of text that a reader meets."""
    kind = path.suffix.lstrip(".")
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if kind == "md":
            fenced ^= line.startswith("```")
            if not fenced and not line.startswith("    "):
                yield number, " " + line
            continue
        comment = re.search(COMMENT[kind], STRING.sub('""', line))
        if comment:
            yield number, comment.group(1)
        for literal in STRING.findall(line.split("//")[0] if kind.endswith("pp") else line):
            yield number, literal


def test_names(path):
    """Line numbers, names of suites and words of the names of a file's tests."""
    text = path.read_text(encoding="utf-8")
    for match in TEST.finditer(text):
        suite, name, function = match.groups()
        words = " ".join(WORD.findall(name or function)).lower()
        yield text.count("\n", 0, match.end()) + 1, suite or "", words[:1].upper() + words[1:]


def findings_in_names(root):
    for path in sorted(path for path in (root / "tests").rglob("*") if path.suffix in (".cpp", ".hpp", ".py")):
        for number, suite, words in test_names(path):
            place = f"{path.relative_to(root)}:{number}"
            if suite.endswith("Of"):
                yield f"{place}: \"{suite}\": name the thing that is tested"
            for pattern, remedy in PHRASES + NAME_PHRASES:
                if match := pattern.search(words):
                    yield f"{place}: \"{match.group().strip()}\": {remedy}: {words}"
                    break


def findings(root):
    files = [root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    files += sorted((root / "docs").rglob("*.md"))
    for folder in ("src", "include", "inputs", "tools"):
        files += sorted(path for path in (root / folder).rglob("*") if path.suffix.lstrip(".") in COMMENT)
    for path in files:
        if not path.is_file() or path.is_symlink():
            continue
        for number, text in texts(path):
            for pattern, remedy in PHRASES:
                if match := pattern.search(text):
                    yield f"{path.relative_to(root)}:{number}: \"{match.group().strip()}\": {remedy}: {text.strip()[:80]}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) == 2 else Path(__file__).parents[2]).resolve()
    found = [*findings(root), *findings_in_names(root)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
