"""Site files: their tables and keys, and the folder of those that come with Trireme. docs/sites.md explains them."""
import difflib
from pathlib import Path

from .mistakes import Mistake, check, check_plain, load_toml, seconds_of

SITES = Path(__file__).resolve().parents[2] / "sites"  # tools/sites in the repository; share/trireme/sites if installed
SUBMIT = {"slurm": "sbatch", "pbs": "qsub", "flux": "flux batch"}
# Tables and keys of a site file, with their types.
WORDS = [str]
TABLES = {
    "": {"description": str, "batch": str, "queue": str, "queue_option": str, "queue_required": bool,
         "account_required": bool, "check": WORDS},
    "node": {"count": int, "ranks": int, "cpus_per_rank": int, "cpus_per_rank_is": str, "cores": int, "numa_domains": int,
             "source": str},
    "batch_options": {"source": str, "slurm": WORDS, "pbs": WORDS, "flux": WORDS},
    "queues": {"name": str, "nodes": [int], "maximum_time": str, "source": str},
    "modules": {"source": str, "load": WORDS},
    "environment": {"name": str, "value": str, "reason": str, "source": str},
    "launch": {"source": str, "slurm": WORDS, "pbs": WORDS, "flux": WORDS, "wrapper": WORDS},
    "binding": {"source": str, "slurm": WORDS, "pbs": WORDS, "flux": WORDS},
}
LISTS = ("queues", "environment")


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
    check(not {"cores", "cpus_per_rank"} <= set(site["node"]), f"{path}: [node] has cores and cpus_per_rank; give cores to let the "
          "script bind the ranks, or cpus_per_rank if the launcher line does")
    systems = [system for system in SUBMIT if system in site["launch"]]
    check(systems, f"{path}: [launch] has no line for slurm, pbs or flux")
    check(site.get("batch") in systems, f"{path}: batch = {site.get('batch')!r}; expected one of "
          f"{', '.join(systems)}, the batch systems of [launch]")
    site["path"], site["name"] = path, path.stem
    return site
