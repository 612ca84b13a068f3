"""Prints a job script for Slurm, PBS or Flux that trains a deck at a site.

One script serves the start and every restart: it trains with checkpoint.restart=latest. Shortly before the batch
system's time limit the run saves and ends with exit code 75, and the script submits itself again. After exit code 76 it
does so without the hosts on which an audit found wrong numbers. Any other non-zero code ends the job. The facts about a
site are in a site file, sites/NAME.toml. docs/sites.md explains these files, docs/batch_jobs.md how jobs
are started, stopped and restarted.
"""
import argparse
import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

from . import program, toml
from .arguments import parse_intermixed

EXAMPLE = """example:
  PROGRAM inputs/gpt2_124m.toml --site perlmutter --nodes 2 --time 06:00:00 --account m0000_g -o gpt2.job
  sbatch gpt2.job
  PROGRAM my.toml --nodes 4-8 --ranks-per-node 4 --time 06:00:00 parallel.layout=auto
"""
SITES = Path(__file__).resolve().parents[2] / "sites"  # tools/sites in the repository; share/trireme/sites if installed
SUBMIT = {"slurm": "sbatch", "pbs": "qsub", "flux": "flux batch"}
# Tables and keys of a site file, with their types.
WORDS = [str]
TABLES = {
    "": {"description": str, "batch": str, "queue": str, "queue_option": str, "queue_required": bool,
         "account_required": bool, "check": WORDS},
    "node": {"count": int, "ranks": int, "cpus_per_rank": int, "cpus_per_rank_is": str, "source": str},
    "batch_options": {"source": str, "slurm": WORDS, "pbs": WORDS, "flux": WORDS},
    "queues": {"name": str, "nodes": [int], "maximum_time": str, "source": str},
    "modules": {"source": str, "load": WORDS},
    "environment": {"name": str, "value": str, "reason": str, "source": str},
    "launch": {"source": str, "slurm": WORDS, "pbs": WORDS, "flux": WORDS, "wrapper": WORDS},
}
LISTS = ("queues", "environment")
PROBE_SECONDS = 20  # a node that does not start a program within this time is lost
WAIT_SECONDS = 30  # between the ends of the first rank and the last one
CHECKED = 32  # maximum of node counts in a range for which the deck is checked
VARIABLES = {"nodes": "@NODES@", "ranks": "@RANKS@"}  # in words of the launcher line; words_of_shell() replaces them


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
    """Refuses what a batch system would read as several words of a directive."""
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


# Site files

def site_names():
    return sorted(path.stem for path in SITES.glob("*.toml"))


def site_path(name):
    if name.endswith(".toml"):
        return Path(name)
    if (SITES / f"{name}.toml").is_file():
        return SITES / f"{name}.toml"
    raise Mistake(f'unknown site "{name}"; choose {", ".join(site_names())}, '
                  "or give a site file that ends in .toml")


def check_type(value, kind, where):
    if isinstance(kind, list):
        name = "integers" if kind == [int] else "strings"
        check(isinstance(value, list) and all(type(part) is kind[0] for part in value),
              f"{where} = {value!r}; expected a list of {name}")
    else:
        name = {str: "a string", int: "an integer", bool: "true or false"}[kind]
        check(type(value) is kind, f"{where} = {value!r}; expected {name}")
        check(kind is not int or value > 0, f"{where} = {value}; expected at least 1")


def check_table(path, name, table):
    check(isinstance(table, dict), f"{path}: {name} is not a table")
    for key, value in table.items():
        if name == "" and key in TABLES:
            continue
        where = f"{path}: {f'[{name}] ' if name else ''}{key}"
        known = [*TABLES[name], *(filter(None, TABLES) if name == "" else ())]
        nearest = difflib.get_close_matches(key, known, 1)
        check(key in TABLES[name], f"{where} is not a key; "
              + (f"did you mean {nearest[0]}?" if nearest else f"the keys are {', '.join(known)}"))
        check_type(value, TABLES[name][key], where)


def load_site(name):
    path = site_path(name)
    site = load_toml(path, "site file")
    check("device" not in site and "network" not in site, f"{path} is a machine file, which `trireme check`, `plan` and "
          f"`predict` read; give a site file: {', '.join(site_names())}, or one that docs/sites.md describes")
    check_plain(site, f"site file {path}")
    check_table(path, "", site)
    for table in filter(None, TABLES):
        parts = site.setdefault(table, [] if table in LISTS else {})
        check(isinstance(parts, list) == (table in LISTS),
              f"{path}: expected {f'[[{table}]]' if table in LISTS else f'[{table}]'}")
        for part in parts if table in LISTS else [parts]:
            check_table(path, table, part)
            needs = set(TABLES[table]) if table in LISTS else {"source"} if part and table != "node" else set()
            missing = sorted(needs - set(part))
            check(not missing, f"{path}: {table} has no {', '.join(missing)}")
    for queue in site["queues"]:
        check(len(queue["nodes"]) == 2,
              f"{path}: queues: nodes = {queue['nodes']}; expected the least and the greatest number")
        seconds_of(queue["maximum_time"], f"{path}: queues: maximum_time")
    systems = [system for system in SUBMIT if system in site["launch"]]
    check(systems, f"{path}: [launch] has no line for slurm, pbs or flux")
    check(site.get("batch") in systems, f"{path}: batch = {site.get('batch')!r}; expected one of "
          f"{', '.join(systems)}, the batch systems of [launch]")
    site["path"], site["name"] = path, path.stem
    return site


class Nodes:
    """The number of nodes of a job, or the range of which the batch system chooses."""

    def __init__(self, text):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", text)
        if not match:
            raise argparse.ArgumentTypeError(f'"{text}" is not a number of nodes; give one such as 4, or 4-8')
        self.least, self.most = int(match[1]), int(match[2] or match[1])
        if self.least < 1:
            raise argparse.ArgumentTypeError(f"{text}: a job has at least 1 node")
        if self.least > self.most:
            raise argparse.ArgumentTypeError(f"{text}: the larger number comes first; give {self.most}-{self.least}")

    def __str__(self):
        return f"{self.least}-{self.most}" if self.is_range() else str(self.least)

    def is_range(self):
        return self.least < self.most

    def numbers(self):
        return range(self.least, self.most + 1)


# The deck

def override(text):
    match = re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+=.*", text)
    check(match, f'"{text}" is not an override; expected section.key=value')
    return text


def setting(deck, overrides, section, key, default):
    """A string of the deck after the overrides."""
    values = [text.partition("=")[2] for text in overrides if text.startswith(f"{section}.{key}=")]
    table = deck.get(section, {})
    return values[-1] if values else str(table.get(key, default) if isinstance(table, dict) else default)


def find_trireme(given):
    """The program that checks the deck: from --trireme, beside this one if installed, or from PATH."""
    if given:
        path = shutil.which(given)
        check(path, f"--trireme {given}: no such program")
        return os.path.abspath(path)
    beside = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), "trireme")
    return beside if os.access(beside, os.X_OK) else shutil.which("trireme")


def check_deck(options, deck):
    """Refuses a deck that does not resolve for every number of nodes, before a job waits in a queue."""
    if options.trireme_path is None:
        print(f"{program()}: the deck was not checked: trireme is not on PATH; give --trireme FILE", file=sys.stderr)
        return
    numbers = options.nodes.numbers()
    if len(numbers) > CHECKED:
        numbers = sorted({numbers[i * (len(numbers) - 1) // (CHECKED - 1)] for i in range(CHECKED)})
        print(f"{program()}: the deck was checked for {len(numbers)} of the numbers of nodes in {options.nodes}",
              file=sys.stderr)
    errors = {}
    for nodes in numbers:
        ranks = nodes * options.ranks_per_node
        said = subprocess.run([options.trireme_path, "check", options.deck, *options.overrides, "--ranks", str(ranks)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if said.returncode != 0:
            errors[nodes] = said.stderr.decode("utf-8", "replace").strip()
    if not errors:
        return
    first, *others = errors
    what = f"{options.deck} does not resolve for {first * options.ranks_per_node} ranks, --nodes {first} times "
    what += f"--ranks-per-node {options.ranks_per_node}"
    if options.nodes.is_range():
        what += f", nor for {', '.join(map(str, others[:8]))}{', ...' if others[8:] else ''} nodes" if others else ""
        what += "; choose --nodes without " + ("these" if others else "it")
        if setting(deck, options.overrides, "parallel", "layout", "given") == "given":
            what += ', or [parallel] layout = "auto"'
    raise Mistake(f"{what}:\n{errors[first]}")


# The job

def settle(options, site):
    """Fills in options from the site file, and refuses values that it does not allow."""
    name = site["name"]
    options.batch = options.batch or site["batch"]
    check(options.batch in site["launch"] or options.launch,
          f"--batch {options.batch}: {site['path']} has no launcher line for it; give one with --launch")
    node = site["node"]
    options.ranks_per_node = options.ranks_per_node or node.get("ranks")
    check(options.ranks_per_node, f"site {name} does not give the number of ranks per node; give --ranks-per-node")
    check(options.ranks_per_node <= node.get("ranks", options.ranks_per_node),
          f"--ranks-per-node {options.ranks_per_node}: a node of {name} has {node.get('ranks')} devices, "
          "and each rank needs its own")
    check(options.batch == "slurm" or not options.nodes.is_range(),
          f"--nodes {options.nodes}: {options.batch} takes one number of nodes; give one, or use --batch slurm")
    check(options.spares is None or options.spares >= 0, f"--spares {options.spares}: expected 0 or more")
    check(options.spares is None or not options.nodes.is_range(),
          f"--spares {options.spares} needs one number of nodes, not --nodes {options.nodes}")
    most = options.nodes.most + (options.spares or 0)
    check(most <= node.get("count", most), f"--nodes {options.nodes}{f' and --spares {options.spares}' if options.spares else ''}"
          f": {name} has {node.get('count')} nodes")
    options.cpus_per_rank = options.cpus_per_rank or node.get("cpus_per_rank")
    options.queue = options.queue or site.get("queue")
    check(options.queue or not site.get("queue_required"), f"a job on {name} needs a queue: --queue "
          + ", ".join(dict.fromkeys(queue["name"] for queue in site["queues"])))
    check(options.account or not site.get("account_required"), f"a job on {name} needs a project: --account")
    options.seconds = seconds_of(options.time, "--time")
    check(0 < options.lead < options.seconds, f"--lead {options.lead}: expected at least 1 second and less than "
          f"--time, {options.seconds} seconds")
    check_queue(options, site)


def check_queue(options, site):
    known = [queue for queue in site["queues"] if queue["name"] == options.queue]
    if not known:
        return  # the site may have queues that the file does not list
    for nodes in (number + (options.spares or 0) for number in options.nodes.numbers()):
        fits = [queue for queue in known if queue["nodes"][0] <= nodes <= queue["nodes"][1]]
        takes = ", ".join(f"{queue['nodes'][0]} to {queue['nodes'][1]}" for queue in known)
        check(fits, f"--nodes {options.nodes}: queue {options.queue} of {site['name']} takes {takes} "
              f"({known[0]['source']})")
        most = fits[0]["maximum_time"]
        check(options.seconds <= seconds_of(most, "maximum_time"), f"--time {options.time}: with {nodes} nodes "
              f"queue {options.queue} of {site['name']} gives at most {most} ({fits[0]['source']})")


def filled(words, values):
    """Words with {name} replaced; omits a word whose value is unknown."""
    out = []
    for word in words:
        names = re.findall(r"\{(\w+)\}", word)
        for name in names:
            check(name in values, f'"{word}": unknown {{{name}}}; choose from {", ".join(values)}')
        if all(values[name] is not None for name in names):
            out.append(re.sub(r"\{(\w+)\}", lambda match: str(values[match.group(1)]), word))
    return out


def shell_line(words):
    return " ".join(map(shlex.quote, words))


def words_of_shell(words):
    """The words as a line of shell, with the shell's variables for VARIABLES."""
    line = []
    for word in words:
        quoted = shlex.quote(word)
        if any(mark in word for mark in VARIABLES.values()):
            quoted = '"' + re.sub(r'([\\"`$])', r"\\\1", word) + '"'
            for name, mark in VARIABLES.items():
                quoted = quoted.replace(mark, f"${{{name}}}")
        line.append(quoted)
    return " ".join(line)


def directives(options, site, values, by_signal):
    """The batch system's directives."""
    own = filled(site["batch_options"].get(options.batch, []), values)
    if options.nodes.is_range():  # the number of tasks is not known to Slurm
        own = [re.sub(r"^--gpus-per-task=(\d+)$",
                      lambda match: f"--gpus-per-node={int(match[1]) * options.ranks_per_node}", word) for word in own]
    own += options.directive
    if options.batch == "slurm":
        queue = site.get("queue_option", "--partition")
        spares = options.spares or 0
        nodes = options.nodes.least + spares if spares else options.nodes
        lines = [f"--job-name={options.name}", f"--nodes={nodes}",
                 *(["--no-kill"] if options.spares is not None else []),
                 # With tasks per node, Slurm 22.05 gives a job only the minimum of its range of nodes.
                 f"--mincpus={values['node_cpus']}" if options.nodes.is_range()
                 else f"--ntasks-per-node={options.ranks_per_node}",
                 *filled(["--cpus-per-task={cpus_per_rank}", "--account={account}", queue + "={queue}"], values),
                 f"--time={options.time}", f"--output={options.name}-%j.out", "--open-mode=append",
                 "--requeue" if options.requeue else "--no-requeue"]
        if by_signal:
            lines.append(f"--signal=USR1@{options.lead}")  # without B:, so that the ranks receive it
        return [f"#SBATCH {line}" for line in lines + own]
    if options.batch == "pbs":
        lines = [f"-N {options.name[:15]}", f"-l walltime={hours_of(options.seconds)}",
                 *filled(["-A {account}", "-q {queue}"], values), f"-r {'y' if options.requeue else 'n'}"]
        return [f"#PBS {line}" for line in lines + own]
    lines = [f"--job-name={options.name}", f"--nodes={options.nodes}", "--exclusive",
             f"--time-limit={options.seconds}s", *filled(["--bank={account}", "--queue={queue}"], values),
             f"--output={options.name}-{{{{id}}}}.out"]
    return [f"#flux: {line}" for line in lines + own]


def environment(options, site):
    lines = []
    if site["modules"].get("load"):
        lines += [f"# {site['modules']['source']}", f"module load {shell_line(site['modules']['load'])}"]
    for variable in site["environment"]:
        lines += [f"# {variable['reason']}: {variable['source']}",
                  f"export {variable['name']}={shlex.quote(variable['value'])}"]
    if options.setup:
        lines += options.setup
    elif options.trireme_path:
        lines.append(f"export PATH={shlex.quote(os.path.dirname(options.trireme_path))}:$PATH")
    return lines


def time_limit(deck, options, by_signal):
    """The override of run.time_limit that stops the run if no signal does, unless the deck sets one."""
    set_by_deck = setting(deck, options.overrides, "run", "time_limit", "00:00:00")
    limit = seconds_of(set_by_deck, "run.time_limit")
    if by_signal:
        return []
    most = options.seconds - options.lead
    check(limit <= most, f"run.time_limit = {set_by_deck} is too long: the job ends after --time {options.time}, and "
          f"saving needs --lead {options.lead} seconds; remove it or set at most {hours_of(most)}")
    return [] if limit > 0 else [f"run.time_limit={hours_of(most)}"]


def again(options):
    """Lines that submit the job again."""
    if not options.requeue:
        return ['echo "job: stopped early; submit the same script again to continue"']
    if options.batch == "slurm":
        return ['scontrol requeue "$SLURM_JOB_ID" ||',
                '  echo "job: cannot be requeued; submit the same script again to continue" >&2']
    if not options.output:
        return ['echo "job: stopped early; submit the same script again to continue '
                f'({program()} -o FILE makes one that submits itself)"']
    submit = {"pbs": "qsub", "flux": "flux --parent batch"}[options.batch]
    return [f"{submit} {shlex.quote(os.path.abspath(options.output))} ||",
            '  echo "job: cannot submit itself again; submit the same script to continue" >&2']


def elsewhere(options):
    """Lines that submit the job again without the hosts in $hosts, on which an audit found wrong numbers."""
    by_hand = ['echo "job: submit the same script again on other hosts to continue" >&2']
    if not options.requeue:
        return by_hand
    if options.batch == "slurm":
        line = 'sbatch --exclude="$hosts" "$0"'  # a requeued job keeps its old list
    elif options.batch == "flux" and options.output:
        line = f'flux --parent batch --requires="-host:$hosts" {shlex.quote(os.path.abspath(options.output))}'
    else:
        return by_hand  # PBS has no option that excludes hosts
    return [f"{line} ||", *("  " + text for text in by_hand)]


def survive(train, options):
    """Lines that run `train` on nodes of the allocation, and again without those that are lost. `found` are the lost
    nodes since the last start: only if there is one is the failure not the run's own."""
    launcher, arguments = train.split(" ", 1)
    override = words_of_shell(options.overrides)
    check = f'trireme check "$deck" {override} --ranks "$((nodes * {options.ranks_per_node}))" >/dev/null 2>&1'
    return f"""answers() {{  # whether a node of the allocation still starts programs
  timeout {PROBE_SECONDS} srun --nodes=1 --ntasks=1 --nodelist="$1" --overlap /bin/true >/dev/null 2>&1
}}
lost=
nodes={options.nodes.least}
while :; do
  ranks=$((nodes * {options.ranks_per_node}))
  {launcher} --wait={WAIT_SECONDS} ${{lost:+--overlap --exclude="$lost"}} {arguments} checkpoint.restart="$restart"
  code=$?
  case $code in 0 | 2 | 75 | 76) break ;; esac
  failed=$(date +%s)
  left=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | while read -r node; do
    case ",$lost," in *",$node,"*) ;; *) echo "$node" ;; esac
  done)
  found=$(for node in $left; do answers "$node" </dev/null || echo "$node" & done; wait)
  [ -n "$found" ] || break
  lost=${{lost:+$lost,}}$(echo $found | tr ' ' ,)
  nodes=$(($(echo "$left" | wc -l) - $(echo "$found" | wc -l)))
  [ "$nodes" -le {options.nodes.least} ] || nodes={options.nodes.least}
  while [ "$nodes" -gt 0 ] && ! {check}; do
    nodes=$((nodes - 1))
  done
  if [ "$nodes" -eq 0 ]; then
    echo "job: lost $lost; the deck does not resolve for the nodes that are left" >&2
{chr(10).join("    " + line for line in again(options))}
    break
  fi
  [ -e "$latest" ] && restart=latest
  echo "job: lost $lost; continuing on $nodes nodes after $(($(date +%s) - failed)) s"
done""".split("\n")


def script(options, site, deck, invocation):
    launch = shlex.split(options.launch) if options.launch else site["launch"][options.batch]
    check(launch, "--launch: expected a command such as 'srun --mpi=pmix -n {ranks}'")
    ranks = options.nodes.least * options.ranks_per_node
    survives = options.spares is not None
    elastic = options.nodes.is_range()
    # Slurm signals the steps started by srun; PBS and Flux cannot signal only the ranks.
    values = {"nodes": options.nodes, "ranks": None if elastic else ranks, "ranks_per_node": options.ranks_per_node,
              "cpus_per_rank": options.cpus_per_rank, "account": options.account, "queue": options.queue,
              "node_cpus": options.ranks_per_node * (options.cpus_per_rank or 1)}
    by_signal = options.batch == "slurm" and Path(launch[0]).name == "srun"
    check(by_signal or not survives, "--spares needs Slurm, and srun as the launcher")
    words = filled(launch, dict(values, **VARIABLES) if elastic or survives else values)
    words += [] if options.launch else site["launch"].get("wrapper", [])
    restart = setting(deck, options.overrides, "checkpoint", "restart", "none")
    directory = setting(deck, options.overrides, "run", "directory", "run")
    checkpoints = setting(deck, options.overrides, "checkpoint", "directory", f"{directory}/checkpoints")
    check_plain([restart, directory, checkpoints], f"{options.deck}: a path")
    overrides = [text for text in options.overrides if not text.startswith("checkpoint.restart=")]
    words += ["trireme", "train", options.deck, *overrides, *time_limit(deck, options, by_signal)]
    train = words_of_shell(words)
    lines = ["#!/bin/bash", *directives(options, site, values, by_signal), "#",
             f"# {site['description']}; nodes: {options.nodes}, ranks: "
             + (f"{options.ranks_per_node} times the nodes that a part gets" if elastic else str(ranks)),
             f"# made by: {invocation}",
             *(f"# to be checked: {text.replace('tools/job', program())}" for text in site.get("check", [])), ""]
    lines += ['cd "$PBS_O_WORKDIR" || exit 1'] if options.batch == "pbs" else []
    lines += environment(options, site)
    lines += ["", f"deck={shlex.quote(options.deck)}", f"latest={shlex.quote(checkpoints + '/latest')}",
              'if [ ! -f "$deck" ]; then', '  echo "job: there is no $deck in $PWD; submit the job in the folder '
              'that the deck\'s paths start from" >&2', "  exit 2", "fi", "restart=latest"]
    if restart not in ("none", "latest"):
        lines.append(f'[ -e "$latest" ] || restart={shlex.quote(restart)}  # the first part starts there')
    if elastic:
        lines += ["nodes=${SLURM_JOB_NUM_NODES:?submit this script with sbatch}  # those that this part got",
                  f"ranks=$((nodes * {options.ranks_per_node}))", 'echo "job: $nodes nodes, $ranks ranks"']
    lines += [f"suspects={shlex.quote(directory + '/suspect_hosts')}  # hosts on which an audit found wrong numbers",
              """suspect_hosts() { sed 's/[. ].*//' "$suspects" 2>/dev/null | sort -u | paste -sd, -; }""",
              'known=$(suspect_hosts)']
    run = survive(train, options) if survives else [f'{train} checkpoint.restart="$restart"', "code=$?"]
    lines += ['before=$(cat "$latest" 2>/dev/null)', "", f"# {site['launch'].get('source', '')}", *run, "",
              "# 0: finished. 75: saved and stopped early. 76: stopped by an audit. Any other code is a failure, which a "
              "restart would repeat.", "hosts=$(suspect_hosts)",
              'if [ "$hosts" != "$known" ] && { [ "$code" -eq 75 ] || [ "$code" -eq 76 ]; }; then',
              '  echo "job: wrong numbers on $hosts ($suspects)" >&2', *("  " + line for line in elsewhere(options)),
              'elif [ "$code" -eq 75 ]; then',
              '  if [ "$(cat "$latest" 2>/dev/null)" = "$before" ]; then',
              '    echo "job: stopped early without a new checkpoint: the time is too short for one step" >&2',
              "    exit 1", "  fi", *("  " + line for line in again(options)), "fi", 'exit "$code"']
    return "\n".join(lines) + "\n"


# The command line

def at_least_one(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def parse(arguments):
    given = argparse.ArgumentParser(add_help=False)
    add = given.add_argument
    add("--site", default="generic", metavar="NAME|FILE", help=", ".join(site_names())
        + ", or a site file that ends in .toml; default: generic")
    add("--batch", choices=list(SUBMIT), help="batch system; default: the site's")
    add("--nodes", type=Nodes, default=Nodes("1"), metavar="N|LEAST-MOST", help="number of nodes, or in Slurm a range "
        "such as 4-8: each part of the run takes the nodes that it gets; default: 1")
    add("--spares", type=int, metavar="N", help="Slurm: nodes in addition to --nodes. If nodes are lost, the job keeps "
        "its allocation and continues on the spare ones, or on as many as are left; 0: only the latter")
    add("--ranks-per-node", type=at_least_one, metavar="N", help="ranks per node; default: one per device of the node")
    add("--cpus-per-rank", type=at_least_one, metavar="N", help="processors per rank; default: the site's")
    add("--time", metavar="[D-]HH:MM:SS", help="time limit of one job; required")
    add("--lead", type=at_least_one, default=300, metavar="SECONDS",
        help="seconds before the time limit at which the run saves and stops; default: 300")
    add("--account", help="project to charge: account in Slurm, project in PBS, bank in Flux")
    add("--queue", "--partition", help="queue or partition; default: the site's")
    add("--name", help="name of the job; default: the deck's")
    add("--directive", action="append", default=[], metavar="LINE",
        help="additional directive for the batch system, such as --directive=--mem=0; repeatable")
    add("--setup", action="append", default=[], metavar="LINE",
        help="shell line before the run, such as 'spack load trireme'; repeatable; default: put the folder of the "
        "trireme that checked the deck on PATH")
    add("--launch", metavar="LINE", help="launcher line that replaces the site's, with {nodes}, {ranks}, "
        "{ranks_per_node} and {cpus_per_rank} replaced")
    add("--no-requeue", dest="requeue", action="store_false", help="do not submit a job again that stopped early")
    add("--trireme", metavar="FILE", help="program that checks the deck; default: trireme on PATH")
    add("-o", "--output", metavar="FILE", help="file for the script; PBS and Flux jobs submit it again by that name")
    parser = argparse.ArgumentParser(prog=program(), description=__doc__, epilog=EXAMPLE.replace("PROGRAM", program()),
                                     parents=[given], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deck", metavar="DECK", help="input deck, relative to the folder in which the job is submitted")
    parser.add_argument("overrides", metavar="section.key=value", nargs="*", help="overrides of the deck")
    options = parse_intermixed(given, parser, arguments)
    if not options.time:
        parser.error("--time is required")
    return options


def check_output(options, site, deck):
    """Refuses to overwrite what the job reads."""
    if not options.output or not os.path.exists(options.output):
        return
    check(os.path.isfile(options.output), f"-o {options.output}: exists and is not a file; give another name")
    data = [setting(deck, options.overrides, "data", key, "") for key in ("train", "validation", "tokenizer")]
    for path in filter(os.path.exists, (options.deck, site["path"], sys.argv[0], *data)):
        check(not os.path.samefile(options.output, path),
              f"-o {options.output}: is {path}, an input of the job; give another name")


def main():
    options = parse(sys.argv[1:])
    try:
        for word in sys.argv[1:]:
            check_plain(word, f"the argument {ascii(word)}")
        options.overrides = [override(text) for text in options.overrides]
        deck = load_toml(Path(options.deck), "deck")
        site = load_site(options.site)
        options.name = options.name or Path(options.deck).stem
        check(re.fullmatch(r"[A-Za-z][\w.+-]*", options.name),
              f'"{options.name}" is not a job name (a letter, then letters, digits and _ . + -); give --name')
        settle(options, site)
        check_word(options.account, "--account")
        check_word(options.queue, "--queue")
        check_output(options, site, deck)
        options.trireme_path = find_trireme(options.trireme)
        check_deck(options, deck)
        text = script(options, site, deck, shell_line([program(), *sys.argv[1:]]))
        if options.output:
            Path(options.output).write_text(text, encoding="utf-8")
            print(f"{SUBMIT[options.batch]} {shlex.quote(options.output)}")
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode("utf-8"))
    except Mistake as mistake:
        print(f"{program()}: error: {mistake}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{program()}: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0
