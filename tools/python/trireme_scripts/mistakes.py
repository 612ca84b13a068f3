"""Errors of the job tool, and checks of the values that it is given."""
import re
import unicodedata

from . import toml


class Mistake(Exception):
    """Printed once on stderr; exit code 2."""


def check(condition, message):
    if not condition:
        raise Mistake(message)


def check_plain(value, what):
    """Refuses characters that end a line or that no terminal shows: a script's lines are commands."""
    if isinstance(value, str):
        odd = [character for character in value if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")]
        check(not odd, f"{what} holds {', '.join(sorted({f'U+{ord(character):04X}' for character in odd}))}, a line "
              "end or another control character; remove it")
    elif isinstance(value, dict):
        for key, part in value.items():
            check_plain(key, f"{what}: a key")
            check_plain(part, f"{what}: {key}")
    elif isinstance(value, list):
        for part in value:
            check_plain(part, what)


def check_word(value, what):
    """Rejects what a batch system would read as several words of a directive."""
    check(value is None or re.fullmatch(r"[\w.,:@%/+=-]+", value),
          f'{what} "{value}": expected letters, digits and _ . , : @ % / + = -')


def seconds_of(text, what):
    """The seconds of [D-]HH:MM:SS."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)", text)
    check(match, f'{what} = "{text}"; expected a duration such as "06:00:00" or "1-12:00:00" (days-hh:mm:ss)')
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def hours_of(seconds):
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def load_toml(path, what):
    try:
        return toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Mistake(f"{what} {path}: {error.strerror}") from None
    except (toml.TomlError, UnicodeDecodeError) as error:
        raise Mistake(f"{what} {path}: {error}") from None
