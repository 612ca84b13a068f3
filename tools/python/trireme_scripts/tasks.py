"""Tasks of a job array: --array and --sweep."""
import itertools
import re

from .mistakes import check

MOST = 10000  # tasks of one array
# The script sets these keys for each task.
RESERVED = ("run.directory", "run.time_limit", "checkpoint.directory", "checkpoint.restart")


def sweep_of(text):
    """The overrides of section.key=v1,v2. Commas within brackets or quotes belong to a value."""
    match = re.fullmatch(r"([a-z0-9_]+\.[a-z0-9_]+)=(.+)", text)
    check(match, f'--sweep "{text}": expected section.key=value,value,...')
    key, values = match.groups()
    check(key not in RESERVED, f"--sweep {key}: the script sets this key for each task")
    parts = re.findall(r"""(?:\[[^\]]*\]|"[^"]*"|'[^']*'|[^,])+""", values)
    check(",".join(parts) == values, f'--sweep "{text}": an empty value')
    check(len(set(parts)) == len(parts), f'--sweep "{text}": a value is given twice')
    return [f"{key}={value}" for value in parts]


def numbers_of(text):
    """Task numbers, ascending, and the suffix of the limit, of a list as Slurm takes it: 0-7, 1,3,5, 0-20:4, 0-7%2."""
    match = re.fullmatch(r"([0-9,:-]+)(%[1-9][0-9]*)?", text)
    parts = [re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7})(?::([1-9][0-9]{0,6}))?)?", part)
             for part in match.group(1).split(",")] if match else [None]
    check(all(parts), f'--array "{text}": expected task numbers such as 0-7, 1,3,5 or 0-7%2 (at most 2 at a time)')
    numbers = set()
    for part in parts:
        first, last = int(part.group(1)), int(part.group(2) or part.group(1))
        check(first <= last, f'--array "{text}": {first}-{last} is empty')
        numbers.update(itertools.islice(range(first, last + 1, int(part.group(3) or 1)), MOST + 1))
        check(len(numbers) <= MOST, f'--array "{text}": more than {MOST} tasks')
    return sorted(numbers), match.group(2) or ""


class Tasks:
    """`overrides` and `names` by task number. Without --array and --sweep there are none."""

    def __init__(self, array, sweeps):
        points = [list(point) for point in itertools.product(*map(sweep_of, sweeps))] if sweeps else []
        check(len(points) <= MOST, f"--sweep: {len(points)} tasks; at most {MOST} are accepted")
        keys = [text.partition("=")[0] for text in points[0]] if points else []
        check(len(set(keys)) == len(keys), "--sweep: a key is given twice; give its values as one list")
        self.numbers, limit = numbers_of(array) if array else (list(range(len(points))), "")
        check(not points or self.numbers[-1] < len(points), f"--array {array}: --sweep has {len(points)} tasks, numbered from 0")
        self.list = array or f"0-{len(points) - 1}{limit}"
        self.swept = bool(points)
        self.overrides = {number: points[number] if points else [] for number in self.numbers}
        self.names = {number: name_of(number, self.overrides[number]) for number in self.numbers}

    def __bool__(self):
        return bool(self.numbers)


def name_of(number, overrides):
    """Such as task_0_learning_rate_1e-3, a folder's name. The number keeps it unique."""
    words = [part for text in overrides for part in text.partition(".")[2].split("=", 1)]
    name = "_".join(["task", str(number)] + words)
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)[:100].rstrip("-.")
