"""The lines of a job script."""
import os
import re
import shlex
from pathlib import Path

from . import program
from .binding import binding_words, thread_lines
from .mistakes import check, check_plain, hours_of, seconds_of

PROBE_SECONDS = 20  # a node that does not start a program within this time is lost
WAIT_SECONDS = 30  # between the ends of the first rank and the last one
# In words of the launcher line and in overrides; words_of_shell() replaces them by variables of the script.
VARIABLES = {"nodes": "@NODES@", "ranks": "@RANKS@"}
TASK = {"task": "@TASK@", "task_name": "@TASK_NAME@"}


def setting(deck, overrides, section, key, default):
    """A string of the deck after the overrides."""
    values = [text.partition("=")[2] for text in overrides if text.startswith(f"{section}.{key}=")]
    table = deck.get(section, {})
    return values[-1] if values else str(table.get(key, default) if isinstance(table, dict) else default)


def filled(words, values):
    """Words with {name} replaced; omits a word whose value is unknown, and a part in brackets such as [:mem={memory}]."""
    out = []
    for word in words:
        word = re.sub(r"\[([^][]*\{(\w+)\}[^][]*)\]",
                      lambda match: match.group(1) if values.get(match.group(2), "") is not None else "", word)
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
        variables = dict(VARIABLES, **TASK)
        if any(mark in word for mark in variables.values()):
            quoted = '"' + re.sub(r'([\\"`$])', r"\\\1", word) + '"'
            for name, mark in variables.items():
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
                 # Hardware threads of a core are not separate processors then.
                 *(["--threads-per-core=1"] if options.cores_per_rank else []),
                 *filled(["--cpus-per-task={cpus_per_rank}", "--account={account}", queue + "={queue}"], values),
                 *([f"--array={options.tasks.list}"] if options.tasks else []), f"--time={options.time}",
                 f"--output={options.name}-{'%A_%a' if options.tasks else '%j'}.out", "--open-mode=append",
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
    lines += thread_lines(options, site)
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
        # The number of an array's last task is that of the array, and would put all tasks back.
        number = "${SLURM_ARRAY_JOB_ID}_$task" if options.tasks else "$SLURM_JOB_ID"
        return [f'scontrol requeue "{number}" ||',
                '  echo "job: cannot be requeued; submit the same script again to continue" >&2']
    if not options.output:
        return ['echo "job: stopped early; submit the same script again to continue '
                f'({program()} -o FILE makes one that submits itself)"']
    submit = {"pbs": "qsub", "flux": "flux --parent batch"}[options.batch]
    return [f"{submit} {shlex.quote(os.path.abspath(options.output))} ||",
            '  echo "job: cannot submit itself again; submit the same script to continue" >&2']


# One line for `trireme report`. Accounting may know the end of a step a few seconds later.
ENERGY = """  local steps="" joules=""
  for _ in 1 2 3 4 5; do
    steps=$(sacct --noheader --parsable2 --jobs="$SLURM_JOB_ID" --format=JobID,End,ConsumedEnergyRaw 2>/dev/null |
      grep '^[^|]*[.][0-9]') || break
    case $steps in *'|Unknown|'*) sleep 1 ;; *) break ;; esac
  done
  joules=$(awk -F '|' '$3 > 0 && $3 < 1e15 { sum += $3 } END { if (sum) printf ",\\"joules\\":%.0f", sum }' <<<"$steps")"""
USED = """used() {{  # nodes, seconds{energy_of_slurm} of this part, for `trireme report`
  [ -d "$run" ] || return 0
{energy}  echo "{{\\"time\\":\\"$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)\\",\\"nodes\\":{nodes},\\"seconds\\":$SECONDS{joules}}}" >> "$run/usage.jsonl"
}}"""


def used(options):
    """The shell function that notes what a part has used."""
    slurm = options.batch == "slurm"
    nodes = f"${{SLURM_JOB_NUM_NODES:-{options.nodes.least}}}" if slurm else str(options.nodes)
    return USED.format(energy_of_slurm=" and energy where Slurm measures it," if slurm else "", nodes=nodes,
                       energy=ENERGY + "\n" if slurm else "", joules="$joules" if slurm else "").split("\n")


def run_lines(train, options, watched):
    """Lines that run `train` and set `code`. With `watched` they keep srun's messages, which name hosts."""
    if not watched:
        return [f"{train}", "code=$?"]
    return [f"""{{ {train} 2>&1 >&3 | (trap '' USR1; exec tee "$errors") >&2; code=${{PIPESTATUS[0]}}; }} 3>&1"""]


WATCH = """errors=$(mktemp) && trap 'rm -f "$errors"' EXIT || exit 1
suspect() {  # the host of the first rank that a signal ended, or else of the first rank that failed
  { grep -E ': (Killed|Aborted|Segmentation fault|Bus error|Illegal instruction)' "$errors"; cat "$errors"; } |
    sed -n 's/^srun: error: \\([^][, :]*\\): tasks* .*/\\1/p' | head -n 1
}""".replace("\\\\", "\\").split("\n")


def retry(options, watched):
    """Lines that submit the job again after a failure, if the part has saved a checkpoint and retries are left."""
    count = "TRIREME_RETRIES=$((tried + 1))"
    name = shlex.quote(os.path.abspath(options.output or ""))
    submit = {"slurm": f'sbatch {of_task(options)}--export=ALL,{count}', "pbs": f"qsub -v {count} {name}",
              "flux": f"flux --parent batch --env={count} {name}"}[options.batch]
    lines = ["tried=${TRIREME_RETRIES:-0}", 'if [ "$(cat "$latest" 2>/dev/null)" = "$before" ]; then',
             '  echo "job: exit code $code before a new checkpoint: no retry" >&2',
             f'elif [ "$tried" -ge {options.retries} ]; then', '  echo "job: exit code $code after $tried retries" >&2', "else"]
    if watched:
        lines += ["  host=$(suspect)", '  if [ -n "$host" ]; then',
                  '    echo "$host  # job $SLURM_JOB_ID: exit code $code" >> "$suspects"', "    hosts=$(suspect_hosts)", "  fi"]
    lines.append(f'  echo "job: exit code $code; retry $((tried + 1)) of {options.retries}${{hosts:+ without $hosts}}" >&2')
    if options.batch == "slurm":  # without enough other nodes, sbatch rejects the list
        lines += [f'  {submit} ${{hosts:+--exclude="$hosts"}} "$0" || {submit} "$0" ||']
    else:
        lines += [f"  {submit} ||"]
    return [*lines, '    echo "job: cannot submit itself again; submit the same script to continue" >&2', "fi"]


def of_task(options):
    return '--array="$task" ' if options.tasks else ""


def elsewhere(options):
    """Lines that submit the job again without the hosts in $hosts, on which an audit found wrong numbers."""
    by_hand = ['echo "job: submit the same script again on other hosts to continue" >&2']
    if not options.requeue:
        return by_hand
    if options.batch == "slurm":
        line = f'sbatch {of_task(options)}--exclude="$hosts" "$0"'  # a requeued job keeps its old list
    elif options.batch == "flux" and options.output:
        line = f'flux --parent batch --requires="-host:$hosts" {shlex.quote(os.path.abspath(options.output))}'
    else:
        return by_hand  # PBS has no option that excludes hosts
    return [f"{line} ||", *("  " + text for text in by_hand)]


def folders(options, deck):
    """[run] directory and the folder of checkpoints, with TASK's marks, and the overrides that set them for a task."""
    directory = setting(deck, options.overrides, "run", "directory", "run")
    checkpoints = setting(deck, options.overrides, "checkpoint", "directory", "")
    check_plain([directory, checkpoints], f"{options.deck}: a path")
    if not options.tasks:
        return directory, checkpoints or f"{directory}/checkpoints", []
    own = []
    for key, path in (("run.directory", directory), ("checkpoint.directory", checkpoints)):
        if path:
            path = with_task(path) if "{task" in path else f"{path}/{TASK['task_name']}"
            own.append(f"{key}={path}")
    paths = [text.partition("=")[2] for text in own]
    return paths[0], paths[1] if checkpoints else f"{paths[0]}/checkpoints", own


def with_task(text):
    for name, mark in TASK.items():
        text = text.replace(f"{{{name}}}", mark)
    return text


def task_paths(options, path):
    """A path of each task, without marks."""
    return [path.replace(TASK["task"], str(number)).replace(TASK["task_name"], options.tasks.names[number])
            for number in options.tasks.numbers]


def summary(options, deck):
    """The command that compares the runs of all tasks; "" for fewer than two."""
    paths = task_paths(options, folders(options, deck)[0]) if options.tasks else []
    check(len(set(paths)) == len(paths), f"[run] directory = {paths[0] if paths else ''} is the same for several tasks; "
          "put {task} into it")
    return shell_line(["trireme", "report", *paths, "-o", f"{options.name}.html"]) if len(paths) > 1 else ""


def choose_task(options):
    """Lines that set the task's name and its overrides."""
    lines = ["task=${SLURM_ARRAY_TASK_ID:?submit this script with sbatch}"]
    if not options.tasks.swept:
        return [*lines, "task_name=task_$task", "swept=()"]
    lines.append("case $task in")
    for number in options.tasks.numbers:
        lines.append(f"  {number}) task_name={options.tasks.names[number]} swept=({shell_line(options.tasks.overrides[number])}) ;;")
    return [*lines, '  *) echo "job: there is no task $task" >&2; exit 2 ;;', "esac",
            'echo "job: task $task: ${swept[*]}"']


def survive(train, options, words, watched):
    """Lines that run `train` on nodes of the allocation, and again without those that are lost. `found` are the lost
    nodes since the last start: only if there is one is the failure not the run's own."""
    launcher, arguments = train.split(" ", 1)
    train = (f"""{launcher} --wait={WAIT_SECONDS} ${{lost:+--overlap --exclude="$lost"}} {arguments} """
             'checkpoint.restart="$restart"')
    run = "\n  ".join(run_lines(train, options, watched))
    check = f'trireme check "$deck" {words} --ranks "$((nodes * {options.ranks_per_node}))" >/dev/null 2>&1'
    return f"""answers() {{  # whether a node of the allocation still starts programs
  timeout {PROBE_SECONDS} srun --nodes=1 --ntasks=1 --nodelist="$1" --overlap /bin/true >/dev/null 2>&1
}}
lost=
nodes={options.nodes.least}
while :; do
  ranks=$((nodes * {options.ranks_per_node}))
  {run}
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
    launch = launch + binding_words(options, site)
    ranks = options.nodes.least * options.ranks_per_node
    survives = options.spares is not None
    elastic = options.nodes.is_range()
    # Slurm signals the steps started by srun; PBS and Flux cannot signal only the ranks.
    values = {"nodes": options.nodes, "ranks": None if elastic else ranks, "ranks_per_node": options.ranks_per_node,
              "cpus_per_rank": options.cpus_per_rank, "cores_per_rank": options.cores_per_rank,
              "account": options.account, "queue": options.queue, "memory": options.memory, "devices": options.devices,
              "devices_per_rank": options.devices and max(1, options.devices // options.ranks_per_node), "mpi": options.mpi,
              "node_cpus": options.ranks_per_node * (options.cpus_per_rank or 1)}
    by_signal = options.batch == "slurm" and Path(launch[0]).name == "srun"
    check(by_signal or not survives, "--spares needs Slurm, and srun as the launcher")
    watched = bool(options.retries) and by_signal
    words = filled(launch, dict(values, **VARIABLES) if elastic or survives else values)
    words += [] if options.launch else site["launch"].get("wrapper", [])
    restart = setting(deck, options.overrides, "checkpoint", "restart", "none")
    check_plain(restart, f"{options.deck}: a path")
    directory, checkpoints, own = folders(options, deck)
    overrides = [text for text in options.overrides if not text.startswith(
        ("checkpoint.restart=", *(text.partition("=")[0] + "=" for text in own)))]
    if options.tasks:
        overrides = [with_task(text) for text in overrides] + own
    overrides = words_of_shell(overrides + time_limit(deck, options, by_signal)) + (' "${swept[@]}"' if options.tasks else "")
    train = " ".join(filter(None, [words_of_shell(words + ["trireme", "train", options.deck]), overrides]))
    lines = ["#!/bin/bash", *directives(options, site, values, by_signal), "#",
             f"# {site['description']}; nodes: {options.nodes}, ranks: "
             + (f"{options.ranks_per_node} times the nodes that a part gets" if elastic else str(ranks)),
             f"# made by: {invocation}",
             *([f"# summary of the tasks: {summary(options, deck)}"] if summary(options, deck) else []),
             *(f"# to be checked: {text.replace('tools/job', program())}" for text in site.get("check", [])), ""]
    lines += ['cd "$PBS_O_WORKDIR" || exit 1'] if options.batch == "pbs" else []
    lines += environment(options, site)
    # `scancel --full --signal=USR1` signals the script as well as the ranks. bash then continues to wait for them.
    lines += ["trap : USR1  # the signal asks the ranks to save and stop; the script waits for them"]
    lines += ["", f"deck={shlex.quote(options.deck)}", *(choose_task(options) if options.tasks else []),
              f"latest={words_of_shell([checkpoints + '/latest'])}",
              'if [ ! -f "$deck" ]; then', '  echo "job: there is no $deck in $PWD; submit the job in the folder '
              'that the deck\'s paths start from" >&2', "  exit 2", "fi", "restart=latest"]
    if restart not in ("none", "latest"):
        lines.append(f'[ -e "$latest" ] || restart={shlex.quote(restart)}  # the first part starts there')
    if elastic:
        lines += ["nodes=${SLURM_JOB_NUM_NODES:?submit this script with sbatch}  # those that this part got",
                  f"ranks=$((nodes * {options.ranks_per_node}))", 'echo "job: $nodes nodes, $ranks ranks"']
    lines += [f"run={words_of_shell([directory])}",
              'suspects=$run/suspect_hosts  # hosts without which the run continues',
              """suspect_hosts() { sed 's/[. ].*//' "$suspects" 2>/dev/null | sort -u | paste -sd, -; }""",
              'known=$(suspect_hosts)', *used(options)]
    if watched:
        lines += WATCH
    run = (survive(train, options, overrides, watched) if survives
           else run_lines(f'{train} checkpoint.restart="$restart"', options, watched))
    lines += ['before=$(cat "$latest" 2>/dev/null)', "", f"# {site['launch'].get('source', '')}", *run, "used", "",
              "# 0: finished. 75: saved and stopped early. 76: stopped by an audit. 2: a mistake. Any other code "
              "is a failure.", "hosts=$(suspect_hosts)",
              'if [ "$hosts" != "$known" ] && { [ "$code" -eq 75 ] || [ "$code" -eq 76 ]; }; then',
              '  echo "job: wrong numbers on $hosts ($suspects)" >&2', *("  " + line for line in elsewhere(options)),
              'elif [ "$code" -eq 75 ]; then',
              '  if [ "$(cat "$latest" 2>/dev/null)" = "$before" ]; then',
              '    echo "job: stopped early without a new checkpoint: the time is too short for one step" >&2',
              "    exit 1", "  fi", *("  " + line for line in again(options))]
    if options.retries:
        lines += ['elif [ "$code" -ne 0 ] && [ "$code" -ne 2 ] && [ "$code" -ne 76 ]; then',
                  *("  " + line for line in retry(options, watched))]
    lines += ["fi", 'exit "$code"']
    return "\n".join(lines) + "\n"
