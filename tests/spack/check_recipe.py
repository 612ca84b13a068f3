"""What the Spack recipe says against what the build files say: options, dependencies, versions, variants, paths.

Needs neither Spack nor a build. `check_recipe.py ROOT` prints one line for each mistake and returns their number.
"""
import ast
import re
import sys
from pathlib import Path

RECIPE = "spack/spack_repo/trireme/packages/trireme/package.py"
INHERITED = {"cuda", "rocm", "cuda_arch", "amdgpu_target"}  # variants of CudaPackage and ROCmPackage
OTHER_NAMES = {"zlib-ng": "zlib-api", "mpich": "mpi"}  # one provider, as CMake's message names it; the interface
INTERFACES = {"gcc": "cxx", "mpich": "mpi", "zlib": "zlib-api"}  # package: what the recipe asks for
NOT_IN_DEBIAN = {"c", "cuda", "nccl", "rccl"}  # c: gcc, as cxx
NOT_BUILT = {"benchmark"}  # TRIREME_BENCHMARKS is off in the recipe


def calls(tree, name):
    """The calls of a directive or of self.<name>, whose first argument is a string that is written out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == name:
                yield node


def first_arguments(tree, name):
    return [node.args[0].value for node in calls(tree, name)]


def wrong_options(root, tree, variants):
    cmake = (root / "CMakeLists.txt").read_text()
    known = set(re.findall(r"^(?:option\(|set\()(TRIREME_\w+)", cmake, re.M))
    for name in first_arguments(tree, "define") + first_arguments(tree, "define_from_variant"):
        if name.startswith("TRIREME_") and name not in known:
            yield f"{RECIPE}: CMakeLists.txt has no option {name}"
    for node in calls(tree, "define_from_variant"):
        if node.args[1].value not in variants:
            yield f"{RECIPE}: there is no variant {node.args[1].value}"


def wrong_dependencies(root, tree):
    """Every package that CMake asks for is a dependency, with the lowest version that CMake takes."""
    cmake = (root / "cmake/TriremeDependencies.cmake").read_text()
    needed = re.findall(r'^\s*trireme_need\("\$\{\w+\}"\s+"([^"]*)"\s+(?:"[^"]*"|\S+)\s+([\w-]+)', cmake, re.M)
    if len(needed) < 10:
        yield f"cmake/TriremeDependencies.cmake: only {len(needed)} calls of trireme_need were understood"
    specs = first_arguments(tree, "depends_on")
    for what, package in needed:
        name = OTHER_NAMES.get(package, package)
        mine = [spec for spec in specs if re.match(r"[\w-]+", spec).group() == name]
        if not mine and name not in NOT_BUILT:
            yield f"{RECIPE}: no dependency {name}, which cmake/TriremeDependencies.cmake needs"
        lowest = re.search(r"(\d+\.\d+) or newer", what)
        if lowest and not any(spec.startswith(f"{name}@{lowest.group(1)}:") for spec in mine):
            yield f"{RECIPE}: {name} is not asked for as @{lowest.group(1)}:, as CMake does"
    lowest = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text()).group(1)
    if f"cmake@{lowest}:" not in specs:
        yield f"{RECIPE}: cmake is not asked for as @{lowest}:, as CMakeLists.txt does"


# Attributes of a package from which Spack takes the source of every version.
SOURCES = {"url", "urls", "svn", "hg", "cvs", "tag", "branch", "commit", "revision", "submodules", "get_full_repo", "expand"}


def wrong_sources(tree):
    """`main` is a commit, which a clone of one commit or tag has too, and no name of the class replaces a version's source."""
    for node in calls(tree, "version"):
        if node.args[0].value == "main" and [keyword.arg for keyword in node.keywords] != ["commit"]:
            yield f"{RECIPE}: version main is not the clone's commit"
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        names = {part.id for statement in node.body if not isinstance(statement, ast.FunctionDef)
                 for part in ast.walk(statement) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        for name in sorted(names & SOURCES):
            yield f"{RECIPE}: Spack takes the class attribute `{name}` for the source of every version"


def wrong_table(root, tree):
    """The lowest versions of docs/install.md are the recipe's."""
    rows = re.findall(r"^\| [^|]+ \| (\d[\d.]*)[^|]*\|[^|]*\|[^|]*\| ([\w-]+) \|$", (root / "docs/install.md").read_text(), re.M)
    if len(rows) < 5:
        yield f"docs/install.md: only {len(rows)} lowest versions were understood"
    specs = first_arguments(tree, "depends_on")
    for lowest, package in rows:
        if not any(spec.startswith(f"{package}@{lowest}:") for spec in specs):
            yield f"{RECIPE}: {package} is not asked for as @{lowest}:, as docs/install.md says"


def wrong_environments(root, variants, versions):
    found = sorted((root / "spack/environments").glob("*/spack.yaml"))
    if [path.parent.name for path in found] != ["cpu", "cuda", "rocm"]:
        yield f"spack/environments: {[path.parent.name for path in found]} instead of cpu, cuda and rocm"
    for path in found:
        text = path.read_text()
        for spec in re.findall(r"trireme@.*", text):
            version, *words = re.split(r"[ \t]+", spec.removeprefix("trireme@"))
            if version not in versions:
                yield f"{path}: the recipe has no version {version}"
            for word in words:
                if (name := re.match(r"[+~]?(\w+)", word).group(1)) not in variants:
                    yield f"{path}: the recipe has no variant {name}"
        for key, marker in (("trireme", "repo.yaml"), ("path", "CMakeLists.txt")):
            place = re.search(rf"^ +{key}: (\.\./\S+)$", text, re.M)
            if not place or not (path.parent / place.group(1) / marker).is_file():
                yield f"{path}: `{key}:` does not lead to a folder with {marker}"


def wrong_externals(root, tree):
    """Debian 12's packages are all that a build for hosts needs, in versions that the recipe accepts."""
    path = root / "spack/externals/debian12/packages.yaml"
    found = re.findall(r"^    - spec: ([\w-]+)@([\d.]+)", path.read_text(), re.M)
    versions = {INTERFACES.get(name, name): tuple(map(int, version.split("."))) for name, version in found}
    needed = {}  # by name: the lowest version of all variants
    for node in calls(tree, "depends_on"):
        name, lowest = re.match(r"([\w-]+)(?:@([\d.]+):)?", node.args[0].value).groups()
        when = [keyword.value.value for keyword in node.keywords if keyword.arg == "when" and isinstance(keyword.value, ast.Constant)]
        if name not in NOT_IN_DEBIAN and when in ([], ["+onednn"]):
            needed.setdefault(name, []).append(tuple(map(int, lowest.split("."))) if lowest else (99,))
    for name, lowest in needed.items():
        if name not in versions:
            yield f"{path}: no package for {name}"
        elif min(lowest) < (99,) and versions[name] < min(lowest):
            yield f"{path}: {name} is older than the recipe's {'.'.join(map(str, min(lowest)))}"


def wrong_places(root):
    for place in re.findall(r"^ +- (\S+)", (root / "spack-repo-index.yaml").read_text(), re.M) or ["?"]:
        if not (root / place / "repo.yaml").is_file():
            yield f"spack-repo-index.yaml: {place} has no repo.yaml"
    top = re.search(r"parents\[(\d+)\]", (root / RECIPE).read_text())
    if not top or not ((root / RECIPE).resolve().parents[int(top.group(1))] / "CMakeLists.txt").is_file():
        yield f"{RECIPE}: its git address is not the top of the repository"


def mistakes(root):
    text = (root / RECIPE).read_text()
    try:
        tree = ast.parse(text, RECIPE)
    except SyntaxError as error:
        return [f"{RECIPE}:{error.lineno}: {error.msg}"]
    variants = INHERITED | set(first_arguments(tree, "variant"))
    return [*wrong_options(root, tree, variants), *wrong_dependencies(root, tree), *wrong_places(root), *wrong_externals(root, tree),
            *wrong_sources(tree), *wrong_table(root, tree),
            *wrong_environments(root, variants, first_arguments(tree, "version"))]


def main():
    found = mistakes(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "the Spack recipe fits the build files")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
