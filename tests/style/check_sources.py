#!/usr/bin/env python3
"""Checks what the build cannot: floors, name pairs, file lengths, deck headers.

    check_sources.py floors|pairs|rooms|switches|includes|lengths|openings|vendors|plans|families|decks|names [repository]

floors   A folder includes only folders of strictly lower floors, and links only their targets. Only grid/ includes
         mpi.h or nccl.h. Host-only folders include no Kokkos.
pairs    Every src/x/y.cpp has its header include/trireme/x/y.hpp, or first includes the header of x/ that declares it.
rooms    A header of fewer than 30 lines has more than one user, and the members of a class are defined in at most two
         sources.
switches A switch over an enumeration names every enumerator, so that the compiler finds a forgotten one: no default.
includes The standard library's headers are included where their names are used, also by a header of the project: sources
         that are compiled in groups do not show it.
lengths  C++ files of more than 600 lines are named. This is advice, and fails nothing.
openings Sources of more than 100 lines begin with a comment that says what they do.
vendors  Names of CUDA, HIP, cuBLASLt, cuDNN and NCCL stand in the few files that speak to them.
plans    Plans depend on a plan::Machine, and not on how the program that makes them was built.
families Only folders that define models or read Hugging Face's files ask for a family; others ask for a property.
decks    Every deck begins with a comment that holds the commands that use it.
names    Files and tests that documents for developers and new users name exist (NAME in a path is any word), links of
         all documents lead to a page and its heading, and docs/development.md has the table of floors.

Prints one line per violation and ends with 1 if there is one that is more than advice.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import deck_commands  # noqa: E402

FLOORS = [
    {"base"},
    {"layout", "rules", "tensor"},
    {"schedule", "io", "grid", "kernels"},
    {"deck"},
    {"architecture"},
    {"plan", "data", "checkpoint", "model"},
    {"optim", "hugging_face", "installation"},
    {"train"},
    {"commands"},
]
FLOOR = {folder: floor for floor, folders in enumerate(FLOORS) for folder in folders}
HOST_ONLY = {"base", "deck", "layout", "rules", "schedule", "architecture", "io", "plan", "data", "checkpoint", "hugging_face",
             "installation"}
LINES_LIMIT = 600
SMALL_HEADER = 30
# The class of a member that a source defines: a name with a capital before :: at the beginning of a definition.
MEMBER = re.compile(r"^(?!using|return|//|#|\s)[^\n;=(]*?\b([A-Z]\w*)(?:<[^<>\n]*>)?::~?\w+\(", re.MULTILINE)
SWITCH = re.compile(r"^ *switch \([^{]*?\) \{", re.MULTILINE)
INCLUDE_LINE = re.compile(r"^#include [<\"]([^>\"]+)[>\"]", re.MULTILINE)
# Names of the standard library for which a source, or a header that it includes, needs this header.
STANDARD_NAMES = {
    "vector": "vector", "string": "string|to_string", "optional": "optional|nullopt", "array": "array", "span": "span",
    "functional": "function", "memory": "unique_ptr|shared_ptr|make_unique|make_shared", "map": "map|multimap",
    "set": "set|multiset", "unordered_map": "unordered_map", "unordered_set": "unordered_set", "deque": "deque",
    "queue": "queue|priority_queue", "variant": "variant|holds_alternative|get_if", "mutex": "mutex|lock_guard|unique_lock",
    "thread": "thread|this_thread", "atomic": "atomic", "future": "future|async", "fstream": "ifstream|ofstream",
    "sstream": "ostringstream|istringstream", "filesystem": "filesystem", "chrono": "chrono", "numeric": "accumulate|gcd|iota",
    "condition_variable": "condition_variable", "random": "mt19937|random_device", "tuple": "tuple|tie",
    "string_view": "string_view", "algorithm": r"sort|find_if|max_element|min_element|any_of|all_of|none_of|ranges::\w+",
}
# Other headers with which a standard header need not be included.
BRING = {"string_view": ("string", "sstream", "filesystem"), "string": ("sstream", "filesystem", "fstream"),
         "tuple": ("functional", "memory", "map"), "algorithm": ("functional",), "array": ("functional", "span"),
         "thread": ("future",), "mutex": ("condition_variable", "future")}
OPENING_LIMIT = 100

SPEAK_TO_VENDORS = {
    "include/trireme/base/function.hpp", "include/trireme/rules/rule.hpp",
    "include/trireme/grid/nccl_library.hpp",
    "include/trireme/kernels/block_launch.hpp",
    "include/trireme/kernels/cuda_block.hpp",
    "include/trireme/kernels/cuda_warpgroup.hpp",
    "include/trireme/kernels/group_launch.hpp",
    "include/trireme/tensor/streams.hpp",
    "src/grid/nccl_library.cpp",
    "src/grid/transport_nccl.cpp",
    "src/kernels/cublaslt.cpp",
    "src/kernels/cudnn_attention.cpp",
    "src/kernels/sm_90a/group_kernels.cpp",
    "src/tensor/device.cpp",
}
VENDOR_NAME = re.compile(r"\b(?:cuda|hip|cublas|cudnn|nccl|rccl|sycl)(?:Lt)?[A-Z]\w*|"
                         r"\b__(?:global|device|shared|launch_bounds)__\b|<<<")

BUILD_MACRO = re.compile(r"\bTRIREME_(?:ON_DEVICE|AS_ON_DEVICE|HAS_\w+|DEVICE_KIND)\b")
KNOW_FAMILIES = {"architecture", "deck", "exchange", "hugging_face"}
FAMILY = re.compile(r"\bFamily::|\.family\s*[=!]=|\bswitch\s*\(.*\bfamily\b")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def sources(root, *folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".cu", ".h"):
                yield path


def folder_of(root, path):
    """The folder of the tree that a file of src/ or include/trireme/ belongs to."""
    parts = path.relative_to(root).parts
    inner = parts[2:] if parts[0] == "include" else parts[1:]
    return inner[0] if len(inner) > 1 else "commands"  # src/main.cpp and src/engine.cpp


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def floors(root):
    for path in sources(root, "src", "include/trireme"):
        folder, name = folder_of(root, path), path.relative_to(root)
        if folder not in FLOOR:
            yield f"{name}: folder {folder} has no floor; add it to the table of tests/style/check_sources.py"
            continue
        for number, header in includes(path):
            if folder in HOST_ONLY and header.startswith("Kokkos"):
                yield f"{name}:{number}: {folder}/ is host-only, but includes {header}"
            if not header.startswith("trireme/"):
                continue
            other = header.split("/")[1]
            if other == folder:
                continue
            if other not in FLOOR:
                yield f"{name}:{number}: includes {header}, whose folder has no floor"
            elif FLOOR[other] >= FLOOR[folder]:
                yield (f"{name}:{number}: {folder}/ (floor {FLOOR[folder]}) includes {header} "
                       f"(floor {FLOOR[other]}); expected a lower floor")
    for path in sources(root, "src", "include/trireme", "tests"):
        parts = path.relative_to(root).parts
        if "grid" in parts or parts[:2] == ("tests", "support"):
            continue
        for number, header in includes(path):
            if header in ("mpi.h", "nccl.h", "rccl.h"):
                yield f"{path.relative_to(root)}:{number}: includes {header}, which only grid/ may"
    yield from linked_floors(root)


def linked_floors(root):
    """trireme_folder(x LINKS trireme_y ...) in src/CMakeLists.txt."""
    lists = root / "src/CMakeLists.txt"
    for match in re.finditer(r"^trireme_folder\((\w+)([^)]*)\)", lists.read_text(), re.MULTILINE):
        folder, rest = match.group(1), match.group(2)
        for other in re.findall(r"\btrireme_(\w+)", rest):
            if other in FLOOR and FLOOR[other] >= FLOOR.get(folder, 0):
                yield f"src/CMakeLists.txt: {folder} links {other}, which is not on a lower floor"
        if folder in HOST_ONLY and re.search(r"MPI::|trireme_kokkos", rest):
            yield f"src/CMakeLists.txt: {folder} is host-only, but links {rest.strip()}"


def pairs(root):
    for path in sources(root, "src"):
        inner = path.relative_to(root / "src")
        if len(inner.parts) == 1 or inner.parts[0] == "commands":
            continue
        # Files that are compiled for one architecture have their own folder in that of their header.
        header = root / "include/trireme" / inner.parts[0] / inner.with_suffix(".hpp").name
        # attention_backward.cpp may be a part of what attention.hpp declares.
        words = inner.stem.split("_")
        stems = ("_".join(words[:n]) for n in range(len(words), 0, -1))
        first = re.search(r"^#include <trireme/([^/]+)/", path.read_text(encoding="utf-8"), re.MULTILINE)
        declared = first and first[1] == inner.parts[0]  # bert.cpp defines what format.hpp declares
        if not declared and not any(header.with_name(stem + ".hpp").exists() for stem in stems):
            yield f"{path.relative_to(root)}: expected its header {header.relative_to(root)}"


def rooms(root):
    users = {}
    for path in sources(root, "src", "include", "tests", "tools"):
        for name in set(INCLUDE_LINE.findall(path.read_text(encoding="utf-8"))):
            if path.stem != Path(name).stem:  # its own source is no user
                users[name] = users.get(name, 0) + 1
    for path in sources(root, "include"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines < SMALL_HEADER and users.get(path.relative_to(root / "include").as_posix(), 0) == 1:
            yield f"{path.relative_to(root)}: {lines} lines for one user; declare it where it is used"
    members = {}
    for path in sources(root, "src"):
        for name in MEMBER.findall(path.read_text(encoding="utf-8")):
            members.setdefault((folder_of(root, path), name), set()).add(path.name)
    for (folder, name), files in sorted(members.items()):
        if len(files) > 2:
            yield f"src/{folder}: members of {name} are defined in {', '.join(sorted(files))}; two sources at most"


def switches(root):
    for path in sources(root, "src", "include", "tests"):
        text = path.read_text(encoding="utf-8")
        for match in SWITCH.finditer(text):
            end = match.end()
            depth = 1
            while depth > 0 and end < len(text):
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            indent = len(match.group()) - len(match.group().lstrip())
            body = re.findall(rf"^ {{{indent + 2}}}(case|default)\b ?([\w:]*)", text[match.end():end], re.MULTILINE)
            if any("::" in label for _, label in body) and ("default", ":") in body:
                yield f"{path.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}: a default hides forgotten " \
                      "enumerators; name them all, or use if"


def standard_includes(header, root, known):
    """Standard headers that a header of the project includes, also by others of the project."""
    if header not in known:
        known[header] = set()  # a cycle would end here
        path = root / "include" / header
        for name in INCLUDE_LINE.findall(path.read_text(encoding="utf-8")) if path.exists() else ():
            known[header] |= standard_includes(name, root, known) if name.startswith("trireme/") else {name}
    return known[header]


def names_with_headers(root):
    known = {}
    for path in sources(root, "src", "include"):
        text = path.read_text(encoding="utf-8")
        found = set()
        for name in INCLUDE_LINE.findall(text):
            found |= standard_includes(name, root, known) if name.startswith("trireme/") else {name}
        code = re.sub(r"//.*|\"(?:[^\"\\\\]|\\\\.)*\"", "", text)
        for header, names in STANDARD_NAMES.items():
            if header in found or any(other in found for other in BRING.get(header, ())):
                continue
            if used := re.search(rf"\bstd::(?:{names})\b", code):
                yield f"{path.relative_to(root)}: uses {used.group()} without <{header}>"


def lengths(root):
    for path in sources(root, "src", "include", "tests", "benchmarks"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LINES_LIMIT:
            yield f"advice: {path.relative_to(root)}: {lines} lines, more than {LINES_LIMIT}: two things may live there"


def openings(root):
    for path in sources(root, "src"):
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > OPENING_LIMIT and not lines[0].startswith("//"):
            yield f"{path.relative_to(root)}:1: expected a comment of two or three lines on what the file does and how"


def vendors(root):
    for path in sources(root, "src", "include"):
        name = path.relative_to(root).as_posix()
        if name in SPEAK_TO_VENDORS:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            code = re.sub(r'"(?:[^"\\\\]|\\\\.)*"', '""', line).split("//")[0]
            if match := VENDOR_NAME.search(code):
                yield f"{name}:{number}: {match.group()} does not compile for every device; only " \
                      f"{', '.join(sorted(SPEAK_TO_VENDORS))} may name it"


def plans(root):
    for folder in ("plan", "architecture"):
        for path in sources(root, f"src/{folder}", f"include/trireme/{folder}"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if match := BUILD_MACRO.search(line):
                    yield f"{path.relative_to(root)}:{number}: {match.group()}: {folder}/ plans for any machine; " \
                          "ask the plan::Machine, which installation/ makes for this build"


def families(root):
    for path in sources(root, "src", "include/trireme"):
        if folder_of(root, path) in KNOW_FAMILIES:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := FAMILY.search(line.split("//")[0]):
                yield f"{path.relative_to(root)}:{number}: {match.group()} asks for a family; ask for a property of " \
                      f"deck::ModelConfig"


def decks(root):
    for path in sorted((root / "inputs").rglob("*.toml")):
        name = path.relative_to(root)
        if name.parts[1] == "machines":
            continue
        if path.is_symlink():  # another name of a deck
            continue
        found = deck_commands.commands(path)
        if not path.read_text(encoding="utf-8").startswith("#"):
            yield f"{name}:1: expected comment lines that say what the deck is for and how it is run"
        for wanted in ("check", "train"):
            if not any(command == wanted and str(name) in line for command, line in found):
                yield f"{name}: its leading comment has no line such as `#   trireme {wanted} {name}`"


NAMING = ("CONTRIBUTING.md", "docs/development.md", "docs/notes/additions.md", "docs/notes/promises.md",
          "docs/tutorial.md")
FILE = re.compile(r"(?<![\w./-])(?:\./)?((?:\.ci|src|include|tests|docs|tools|inputs|cmake|spack)/[\w./*-]+|"
                  r"(?:CHANGELOG|CMakeLists|CMakePresets|CONTRIBUTING|README)\.\w+)")
TEST = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")
ENTRY = re.compile(r"`([a-z]\w+\.[a-z]\w+)`")  # of ctest, with the folder's name before the dot
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
FLOOR_ROW = re.compile(r"^\| (\d) \| `(\w+)` \|", re.MULTILINE)


def anchors(page):
    """The headings of a page as a link names them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*?)\s*$", text, re.MULTILINE)}


def broken_links(root):
    for page in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            path, _, heading = target.partition("#")
            to = page.parent / path if path else page
            if re.match(r"\w+:", target):
                continue
            if not to.exists():
                yield f"{page.relative_to(root)}: links {target}, which does not exist"
            elif heading and heading not in anchors(to):
                yield f"{page.relative_to(root)}: links {target}, but the page has no such heading"


def names(root):
    tests = {pair for path in sources(root, "tests")
             for pair in re.findall(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text(encoding="utf-8"),
                                    re.MULTILINE)}
    lists = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "tests").rglob("CMakeLists.txt")))
    entries = set(re.findall(r"\bNAME ([\w.]+)", lists))
    entries |= {"style." + name for name in re.findall(r"^\s*trireme_style\((\w+)", lists, re.MULTILINE)}
    labels = {entry.split(".")[0] for entry in entries}
    for name in NAMING:
        page = root / name
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        if not text:
            yield f"{name}: expected such a page"
        for path in sorted({found.rstrip(".-") for found in FILE.findall(text)}):
            if not any(root.glob(re.sub(r"NAME", "*", path).rstrip("/"))):
                yield f"{name}: names {path}, which does not exist"
        for suite, claim in sorted(set(TEST.findall(text)) - tests):
            yield f"{name}: names the test {suite}.{claim}, which does not exist"
        for entry in sorted(set(ENTRY.findall(text)) - entries):
            if entry.split(".")[0] in labels:
                yield f"{name}: names the test {entry}, which no CMakeLists.txt adds"
        if name == "docs/development.md" and text:
            shown = {folder: int(floor) for floor, folder in FLOOR_ROW.findall(text)}
            for folder in sorted(FLOOR.keys() | shown.keys()):
                if shown.get(folder) != FLOOR.get(folder):
                    yield f"{name}: shows {folder} on floor {shown.get(folder)}, expected {FLOOR.get(folder)}"
    yield from broken_links(root)


CHECKS = {"floors": floors, "pairs": pairs, "rooms": rooms, "switches": switches, "includes": names_with_headers,
          "lengths": lengths, "openings": openings, "vendors": vendors, "plans": plans, "families": families,
          "decks": decks, "names": names}


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in CHECKS:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(sys.argv[2] if len(sys.argv) == 3 else Path(__file__).parents[2]).resolve()
    violations = list(CHECKS[sys.argv[1]](root))
    for violation in violations:
        print(violation)
    return 1 if any(not violation.startswith("advice: ") for violation in violations) else 0


if __name__ == "__main__":
    sys.exit(main())
