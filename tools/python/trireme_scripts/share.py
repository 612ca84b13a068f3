"""Writes the manual pages and the completions of the other programs from their parsers.

    python3 -m trireme_scripts.share FOLDER

The build calls it; FOLDER becomes the share/ of an installation.
"""
import argparse
import re
import shlex
import sys
from pathlib import Path

from . import calibrate, job, tensorboard
from .sites import site_names

PROGRAMS = {"trireme-job": job, "trireme-calibrate": calibrate, "trireme-tensorboard": tensorboard}


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def options_of(parser):
    return [action for action in parser._actions if action.option_strings]


def positionals_of(parser):
    return [action for action in parser._actions if not action.option_strings]


def help_of(action):
    return " ".join((action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%").split())


def metavar_of(action):
    if action.nargs == 0:
        return ""
    return action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())


def manual(name, parser):
    summary, _, rest = parser.description.strip().partition("\n\n")
    lines = [f".TH {name.upper()} 1", ".ad l", ".SH NAME", roff(f"{name} - {summary.rstrip('.')}"), ".SH SYNOPSIS",
             roff(" ".join(parser.format_usage().partition("usage: ")[2].split())), ".SH DESCRIPTION"]
    for paragraph in rest.split("\n\n"):
        if paragraph.startswith("    "):
            lines += [".PP", ".nf", roff(paragraph.strip("\n")), ".fi"]
        elif paragraph.strip():
            lines += [".PP", roff(paragraph.strip())]
    lines.append(".SH OPTIONS")
    for action in positionals_of(parser) + options_of(parser):
        words = [f"{option} {metavar_of(action)}".strip() for option in action.option_strings] or [metavar_of(action)]
        lines += [".TP", ".B " + roff(", ".join(words)), roff(help_of(action))]
    if parser.epilog:
        lines += [".SH EXAMPLE", ".nf", roff("\n".join(parser.epilog.strip().splitlines()[1:])), ".fi"]
    return "\n".join(lines) + "\n"


def choices_of(action):
    return list(action.choices or (site_names() if action.dest == "site" else []))


def bash(name, parser):
    function = "_" + name.replace("-", "_")
    words = " ".join(option for action in options_of(parser) for option in action.option_strings)
    lines = [f"{function}() {{", "  local current=${COMP_WORDS[COMP_CWORD]}", "  case ${COMP_WORDS[COMP_CWORD - 1]} in"]
    for action in options_of(parser):
        if choices_of(action):
            lines.append(f"    {'|'.join(action.option_strings)}) COMPREPLY=($(compgen -W {shlex.quote(' '.join(choices_of(action)))} "
                         "-- \"$current\")); return ;;")
    return "\n".join([*lines, "    *) ;;", "  esac", "  case $current in",
                      f'    -*) COMPREPLY=($(compgen -W {shlex.quote(words)} -- "$current")) ;;',
                      '    *) COMPREPLY=($(compgen -f -- "$current")) ;;', "  esac", "}",
                      f"complete -o filenames -F {function} {name}"]) + "\n"


def zsh(name, parser):
    lines = [f"#compdef {name}", "_arguments \\"]
    for action in options_of(parser):
        text = re.sub(r"[][:\\]", " ", help_of(action)).strip()
        value = f":{re.sub(r'[^A-Za-z]+', '-', metavar_of(action)).strip('-')}:" if metavar_of(action) else ""
        value += f"({' '.join(choices_of(action))})" if value and choices_of(action) else "_files" if value else ""
        lines += [f"  {shlex.quote(f'*{option}[{text}]{value}')} \\" for option in action.option_strings]
    return "\n".join([*lines, "  '*:file:_files'"]) + "\n"


def fish(name, parser):
    lines = []
    for action in options_of(parser):
        words = ["complete", "-c", name]
        for option in action.option_strings:
            words += ["-l", option[2:]] if option.startswith("--") else ["-s", option[1:]]
        words += ["-d", help_of(action)] + (["-r"] if metavar_of(action) else [])
        words += ["-a", " ".join(choices_of(action))] if choices_of(action) else []
        lines.append(" ".join("'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'" for word in words))
    return "\n".join(lines) + "\n"


def main(folder):
    for name, module in PROGRAMS.items():
        sys.argv[0] = name
        _, parser = module.parsers()
        for path, text in ((f"man/man1/{name}.1", manual(name, parser)),
                           (f"bash-completion/completions/{name}", bash(name, parser)),
                           (f"zsh/site-functions/_{name}", zsh(name, parser)),
                           (f"fish/vendor_completions.d/{name}.fish", fish(name, parser))):
            path = Path(folder) / path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("folder", metavar="FOLDER", help="the share/ of an installation")
    main(command.parse_args().folder)
