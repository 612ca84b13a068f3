#!/usr/bin/env python3
"""Finds phrases that make the documents, messages and comments hard to read.

    check_phrases.py [repository]

Reads Markdown pages without their command output, and comments and string literals of C++ sources, decks and scripts.
Prints one line per finding with the words to use instead, and ends with 1 if there is one.
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
    found = list(findings(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
