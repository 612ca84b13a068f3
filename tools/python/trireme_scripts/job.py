"""Prints a job script for Slurm, PBS or Flux that trains a deck at a site.

One script serves the start and every restart: it trains with checkpoint.restart=latest. Shortly before the batch
system's time limit the run saves and ends with exit code 75, and the script submits itself again. After exit code 76 it
does so without the hosts on which an audit found wrong numbers, and with --retries after a failure. Any other non-zero code
ends the job. The facts about a site are in a site file, sites/NAME.toml. docs/sites.md explains these files,
docs/batch_jobs.md how jobs are started, stopped and restarted.
"""
import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from . import program
from .arguments import parse_intermixed
from .binding import settle_binding, warn_of_binding
from .job_script import script, setting, shell_line, summary
from .mistakes import Mistake, check, check_plain, check_word, load_toml, seconds_of
from .sites import SUBMIT, load_site, site_names
from .tasks import Tasks

EXAMPLE = """example:
  PROGRAM inputs/gpt2_124m.toml --site perlmutter --nodes 2 --time 06:00:00 --account m0000_g -o gpt2.job
  sbatch gpt2.job
  PROGRAM my.toml --ranks-per-node 4 --time 06:00:00 --sweep optimizer.learning_rate=1e-3,3e-4 -o sweep.job
  PROGRAM my.toml --nodes 4-8 --ranks-per-node 4 --time 06:00:00 parallel.layout=auto
"""
# srun's --mpi by the name of the MPI library; Cray's needs none.
MANAGERS = (("CRAY", None), ("Cray", None), ("Open MPI", "pmix"), ("MPICH", "pmi2"), ("MVAPICH", "pmi2"), ("Intel", "pmi2"))
CHECKED = 32  # maximum of node counts in a range for which the deck is checked


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


def override(text):
    match = re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+=.*", text)
    check(match, f'"{text}" is not an override; expected section.key=value')
    return text


def find_trireme(given):
    """The program that checks the deck: from --trireme, beside this one if installed, or from PATH."""
    if given:
        path = shutil.which(given)
        check(path, f"--trireme {given}: no such program")
        return os.path.abspath(path)
    beside = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), "trireme")
    return beside if os.access(beside, os.X_OK) else shutil.which("trireme")


def ask_build(options):
    """Sets `mpi`, Slurm's name of the process manager, `devices` and `threads` from what trireme was built with."""
    said = ""
    if options.trireme_path:
        said = subprocess.run([options.trireme_path, "--version"], stdout=subprocess.PIPE).stdout.decode("utf-8", "replace")
    library = re.search(r"^MPI .*$", said, re.MULTILINE)
    library = library.group() if library else ""
    options.threads = bool(re.search(r"^Kokkos .*\bOPENMP\b", said, re.MULTILINE))
    options.mpi = next((manager for name, manager in MANAGERS if name in library), None)
    if options.devices is None and re.search(r"^Kokkos .*\b(CUDA|HIP|SYCL)\b", said, re.MULTILINE):
        options.devices = options.ranks_per_node
    options.devices = options.devices or None


def error_of(options, nodes, task=None):
    """The error message of `trireme check` about the deck of a job or of one task; empty if it resolves."""
    overrides = options.overrides
    if task is not None:
        name = options.tasks.names[task]
        overrides = [text.replace("{task}", str(task)).replace("{task_name}", name) for text in overrides]
        overrides += options.tasks.overrides[task]
    said = subprocess.run([options.trireme_path, "check", options.deck, *overrides, "--ranks",
                           str(nodes * options.ranks_per_node)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return said.stderr.decode("utf-8", "replace").strip() if said.returncode != 0 else ""


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
    tasks = options.tasks.numbers[:CHECKED]
    if len(tasks) < len(options.tasks.numbers):
        print(f"{program()}: the deck was checked for the first {CHECKED} tasks", file=sys.stderr)
    for task in tasks:
        swept = options.tasks.overrides[task]
        error = error_of(options, options.nodes.least, task)
        check(not error or not swept, f"task {task} ({' '.join(swept)}):\n{error}")
    errors = {nodes: error for nodes, error in ((nodes, error_of(options, nodes, *tasks[:1])) for nodes in numbers) if error}
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
    check(options.batch == "slurm" or not options.tasks, f"--array and --sweep need Slurm, not {options.batch}; make a "
          "script for each task")
    check(options.batch == "slurm" or not options.nodes.is_range(),
          f"--nodes {options.nodes}: {options.batch} takes one number of nodes; give one, or use --batch slurm")
    check(options.spares is None or options.spares >= 0, f"--spares {options.spares}: expected 0 or more")
    check(options.spares is None or not options.nodes.is_range(),
          f"--spares {options.spares} needs one number of nodes, not --nodes {options.nodes}")
    most = options.nodes.most + (options.spares or 0)
    check(most <= node.get("count", most), f"--nodes {options.nodes}{f' and --spares {options.spares}' if options.spares else ''}"
          f": {name} has {node.get('count')} nodes")
    settle_binding(options, site)
    options.cpus_per_rank = options.cpus_per_rank or node.get("cpus_per_rank")
    options.memory = options.memory or ("0" if options.batch == "slurm" else None)
    check_word(options.memory, "--memory")
    check(options.devices is None or options.devices >= 0, f"--devices {options.devices}: expected 0 or more")
    check(options.retries >= 0, f"--retries {options.retries}: expected 0 or more")
    check(options.requeue or not options.retries, "--retries and --no-requeue exclude each other")
    check(options.batch == "slurm" or options.output or not options.retries,
          f"--retries: a job of {options.batch} submits its file again; give its name with -o")
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


def at_least_one(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def parsers():
    """The parser of the options alone, and the parser of all arguments."""
    given = argparse.ArgumentParser(add_help=False)
    add = given.add_argument
    add("--site", default="generic", metavar="NAME|FILE", help=", ".join(site_names())
        + ", or a site file that ends in .toml; default: generic")
    add("--batch", choices=list(SUBMIT), help="batch system; default: the site's")
    add("--nodes", type=Nodes, default=Nodes("1"), metavar="N|LEAST-MOST", help="number of nodes, or in Slurm a range "
        "such as 4-8: each part of the run takes the nodes that it gets; default: 1")
    add("--spares", type=int, metavar="N", help="Slurm: nodes in addition to --nodes. If nodes are lost, the job keeps "
        "its allocation and continues on the spare ones, or on as many as are left; 0: only the latter")
    add("--array", metavar="LIST", help="Slurm: a task for each number of a list such as 0-7, 1,3,5 or 0-7%%2. {task} in "
        "an override is the task's number. Each task runs in a folder of its own, task_N in [run] directory")
    add("--sweep", action="append", default=[], metavar="section.key=V1,V2", help="Slurm: a task for each value; "
        "repeatable, with a task for each combination")
    add("--ranks-per-node", type=at_least_one, metavar="N", help="ranks per node; default: one per device of the node")
    add("--cpus-per-rank", type=at_least_one, metavar="N", help="processors per rank; default: the site's")
    add("--cores", type=at_least_one, metavar="N", help="cores of each node. The script then binds each rank to its share of "
        "them; default: the site's")
    add("--numa-domains", type=at_least_one, metavar="N", help="NUMA domains of each node, to warn of ranks with cores of several; "
        "default: the site's, or 1")
    add("--time", metavar="[D-]HH:MM:SS", help="time limit of one job; required")
    add("--lead", type=at_least_one, default=300, metavar="SECONDS",
        help="seconds before the time limit at which the run saves and stops; default: 300")
    add("--account", help="project to charge: account in Slurm, project in PBS, bank in Flux")
    add("--queue", "--partition", help="queue or partition; default: the site's")
    add("--retries", type=int, default=0, metavar="N", help="submit the job again after a failure, at most N times, if the "
        "failed part saved a checkpoint; in Slurm without the host of the rank that failed; default: 0")
    add("--memory", metavar="SIZE", help="memory of each node, such as 64G, for site files with {memory}; in Slurm, 0 is all "
        "memory of a node, and the default")
    add("--devices", type=int, metavar="N", help="devices of each node, for site files with {devices}; default: one per rank "
        "if trireme was built for devices")
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
    return given, parser


def parse(arguments):
    given, parser = parsers()
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
        options.tasks = Tasks(options.array, options.sweep)
        settle(options, site)
        check_word(options.account, "--account")
        check_word(options.queue, "--queue")
        check_output(options, site, deck)
        options.trireme_path = find_trireme(options.trireme)
        ask_build(options)
        warn_of_binding(options)
        check_deck(options, deck)
        text = script(options, site, deck, shell_line([program(), *sys.argv[1:]]))
        if options.output:
            Path(options.output).write_text(text, encoding="utf-8")
            print(f"{SUBMIT[options.batch]} {shlex.quote(options.output)}")
            if options.tasks and summary(options, deck):
                print(summary(options, deck))
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
