"""Reads TOML 1.0 without dates, for Python versions without tomllib.

`loads(text)` returns nested dicts, as tomllib does. Site files and decks have no dates; a date is an error.
"""
import re

BARE = re.compile(r"[A-Za-z0-9_-]+")
FLOAT = re.compile(r"[+-]?(?:(?:0|[1-9](?:_?[0-9])*)(?:\.[0-9](?:_?[0-9])*)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?|inf|nan)")
WHOLE = re.compile(r"0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*|[+-]?(?:0|[1-9](?:_?[0-9])*)")
WORD = re.compile(r"[^\s,\]}#]+")
ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
DEPTH = 100  # of lists and tables within another


class TomlError(ValueError):
    """Says what is wrong, and where."""


class Frozen(dict):
    """An inline table: closed to later keys."""


class Reader:
    def __init__(self, text):
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.top = {}
        self.headers = set()  # identities of tables that have had their [header], or were made by a dotted key

    def fail(self, what):
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - (self.text.rfind("\n", 0, self.at) + 1) + 1
        raise TomlError(f"{what} (at line {line}, column {column})")

    def starts(self, mark):
        return self.text.startswith(mark, self.at)

    def take(self, mark):
        if not self.starts(mark):
            self.fail(f"expected {mark!r}")
        self.at += len(mark)

    def spaces(self, lines=False):
        """Skips blanks; with `lines` also ends of lines and comments."""
        while self.at < len(self.text):
            if self.text[self.at] in " \t" or lines and self.text[self.at] == "\n":
                self.at += 1
            elif lines and self.text[self.at] == "#":
                self.comment()
            else:
                return

    def comment(self):
        if self.starts("#"):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            self.plain(self.text[self.at:end])
            self.at = end

    def plain(self, part, allowed="\t"):
        if any((ord(c) < 32 or ord(c) == 127) and c not in allowed for c in part):
            self.fail("a control character")

    def read(self):
        table = self.top
        while True:
            self.spaces(lines=True)
            if self.at == len(self.text):
                return self.top
            if self.starts("["):
                table = self.header()
            else:
                self.pair(table)
            self.spaces()
            self.comment()
            if self.at < len(self.text):
                self.take("\n")

    def key(self):
        """The parts of a dotted key."""
        parts = []
        while True:
            self.spaces()
            if self.starts('"') or self.starts("'"):
                if self.starts('"""') or self.starts("'''"):
                    self.fail("a key over several lines")
                parts.append(self.string())
            else:
                match = BARE.match(self.text, self.at)
                if not match:
                    self.fail("expected a key")
                parts.append(match.group())
                self.at = match.end()
            self.spaces()
            if not self.starts("."):
                return parts
            self.at += 1

    def header(self):
        double = self.starts("[[")
        self.take("[[" if double else "[")
        *outer, last = self.key()
        self.take("]]" if double else "]")
        table = self.top
        for part in outer:
            table = table.setdefault(part, {})
            if isinstance(table, list) and table and id(table) in self.headers:
                table = table[-1]
            if not isinstance(table, dict) or isinstance(table, Frozen):
                self.fail(f"{part} is not a table")
        if double:
            new = last not in table
            tables = table.setdefault(last, [])
            if new:
                self.headers.add(id(tables))
            if not isinstance(tables, list) or id(tables) not in self.headers:
                self.fail(f"{last} is not a list of tables")
            tables.append({})
            return tables[-1]
        found = table.setdefault(last, {})
        if not isinstance(found, dict) or isinstance(found, Frozen) or id(found) in self.headers:
            self.fail(f"{last} is set twice")
        self.headers.add(id(found))
        return found

    def pair(self, table, depth=0):
        *outer, last = self.key()
        self.take("=")
        for part in outer:
            if part not in table:
                table[part] = {}
                self.dotted(table[part])
            table = table[part]
            if not isinstance(table, dict) or isinstance(table, Frozen):
                self.fail(f"{part} is not a table")
        if last in table:
            self.fail(f"{last} is set twice")
        self.spaces()
        table[last] = self.value(depth)

    def dotted(self, table):
        self.headers.add(id(table))

    def value(self, depth):
        if depth > DEPTH:
            self.fail("too many lists within another")
        if self.starts('"') or self.starts("'"):
            return self.string()
        if self.starts("["):
            return self.array(depth)
        if self.starts("{"):
            return self.inline_table(depth)
        match = WORD.match(self.text, self.at)
        word = match.group() if match else ""
        if word in ("true", "false"):
            value = word == "true"
        elif WHOLE.fullmatch(word):
            value = int(word.replace("_", ""), 0) if word[:1] == "0" and len(word) > 1 else int(word.replace("_", ""))
        elif FLOAT.fullmatch(word):
            value = float(word.replace("_", ""))
        else:
            self.fail(f"{word[:40]!r} is not a value (a date is none here, and a string needs quotes)" if word
                      else "expected a value")
        self.at = match.end()
        return value

    def array(self, depth):
        self.take("[")
        parts = []
        while True:
            self.spaces(lines=True)
            if self.starts("]"):
                self.at += 1
                return parts
            parts.append(self.value(depth + 1))
            self.spaces(lines=True)
            if not self.starts("]"):
                self.take(",")

    def inline_table(self, depth):
        self.take("{")
        table = {}
        self.spaces()
        while not self.starts("}"):
            self.pair(table, depth + 1)
            self.spaces()
            if not self.starts("}"):
                self.take(",")
                self.spaces()
                if self.starts("}"):
                    self.fail("a comma before }")
        self.at += 1
        return freeze(table)

    def string(self):
        quote = self.text[self.at]
        several = self.starts(3 * quote)
        mark = 3 * quote if several else quote
        self.take(mark)
        if several and self.starts("\n"):
            self.at += 1
        out = []
        while not self.starts(mark):
            if self.at == len(self.text):
                self.fail("a string without its end")
            character = self.text[self.at]
            if character == "\\" and quote == '"':
                out.append(self.escape(several))
                continue
            self.plain(character, "\t\n" if several else "\t")
            out.append(character)
            self.at += 1
        self.at += len(mark)
        for _ in range(2 if several else 0):  # quotes just before the mark belong to the string
            if self.starts(quote):
                out.append(quote)
                self.at += 1
        return "".join(out)

    def escape(self, several):
        kind = self.text[self.at + 1:self.at + 2]
        end = re.compile(r"\\[ \t]*\n[ \t\n]*").match(self.text, self.at) if several else None
        if end:  # a backslash joins lines
            self.at = end.end()
            return ""
        digits = {"u": 4, "U": 8}.get(kind)
        if digits:
            code = self.text[self.at + 2:self.at + 2 + digits]
            if not re.fullmatch(r"[0-9A-Fa-f]{%d}" % digits, code) or not is_scalar(int(code, 16)):
                self.fail(f"\\{kind}{code} is not a character")
            self.at += 2 + digits
            return chr(int(code, 16))
        if kind not in ESCAPES or kind == "":
            self.fail(f"\\{kind} is not an escape sequence")
        self.at += 2
        return ESCAPES[kind]


def is_scalar(code):
    return code < 0xD800 or 0xE000 <= code < 0x110000


def freeze(value):
    return Frozen((key, freeze(part)) for key, part in value.items()) if isinstance(value, dict) else value


def loads(text):
    return Reader(text).read()
