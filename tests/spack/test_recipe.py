"""The recipe has no mistakes, each kind of mistake, put into a copy, is found, and its directives are as they should be in a
clone of one commit."""
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_recipe import RECIPE, mistakes  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CPU = "spack/environments/cpu/spack.yaml"
DEBIAN = "spack/externals/debian12/packages.yaml"
BREAKS = [  # file, what stands there, what is put in its place, what the message names
    (RECIPE, "def cmake_args(self):", "def cmake_args(self:", "package.py:"),
    (RECIPE, '"TRIREME_ONEDNN"', '"TRIREME_DNNL"', "no option TRIREME_DNNL"),
    (RECIPE, '"TRIREME_TESTS", "tests"', '"TRIREME_TESTS", "test"', "no variant test"),
    (RECIPE, '    depends_on("xxhash")\n', "", "no dependency xxhash"),
    (RECIPE, '        depends_on("nccl", when="+nccl")\n', "", "no dependency nccl"),
    (RECIPE, '"TRIREME_CUBLASLT"', '"TRIREME_CUBLAS"', "no option TRIREME_CUBLAS"),
    (RECIPE, "kokkos@3.4:4", "kokkos@3.3:4", "kokkos is not asked for as @3.4:"),
    (RECIPE, "cmake@3.22:", "cmake@3.16:", "cmake is not asked for as @3.22:"),
    (RECIPE, "parents[5]", "parents[4]", "top of the repository"),
    ("cmake/TriremeDependencies.cmake", '"HDF5 1.10 or newer', '"HDF5 1.14 or newer', "hdf5 is not asked for"),
    ("CMakeLists.txt", "option(TRIREME_NATIVE", "option(TRIREME_LOCAL", "no option TRIREME_NATIVE"),
    (RECIPE, 'commit=of_clone("rev-parse", "HEAD") or None', 'branch="main"', "version main is not the clone's commit"),
    (RECIPE, "for release, release_commit in", "for release, commit in", "class attribute `commit`"),
    (RECIPE, "icu4c@60:", "icu4c", "icu4c is not asked for as @60:"),
    (RECIPE, "python@3.6:", "python@3.11:", "python is not asked for as @3.6:"),
    (DEBIAN, "- spec: xxhash@0.8.1", "- spec: xxhsum@0.8.1", "no package for xxhash"),
    (DEBIAN, "cmake@3.25.1", "cmake@3.20", "cmake is older than the recipe's 3.22"),
    (CPU, "trireme@main +onednn", "trireme@1.0 +onednn", "no version 1.0"),
    (CPU, "+onednn", "+mkl", "no variant mkl"),
    (CPU, "path: ../../..", "path: ../..", "CMakeLists.txt"),
    ("spack-repo-index.yaml", "spack_repo/trireme", "spack_repo/galley", "has no repo.yaml"),
]


def copied(folder):
    for path in ("spack", "cmake"):
        shutil.copytree(ROOT / path, folder / path, ignore=shutil.ignore_patterns(".spack-env", "spack.lock"))
    (folder / "docs").mkdir()
    for path in ("CMakeLists.txt", "spack-repo-index.yaml", "docs/install.md"):
        shutil.copy(ROOT / path, folder / path)
    return folder


class Directives:
    """Stands for Spack: notes (arguments, keywords, conditions around) of each directive of a recipe."""

    def __init__(self, recipe):
        self.calls, self.around = {}, []
        base = type("Base", (), {"cuda_arch_values": ("80", "90", "90a", "100f"), "amdgpu_targets": ("gfx90a",)})
        modules = {"spack": {}, "spack_repo": {}, "spack_repo.builtin": {}, "spack_repo.builtin.build_systems": {},
                   "spack.package": {name: self.directive(name) for name in (
                       "license", "version", "variant", "depends_on", "conflicts")},
                   "spack_repo.builtin.build_systems.cmake": {"CMakePackage": type("CMakePackage", (), {})},
                   "spack_repo.builtin.build_systems.cuda": {"CudaPackage": type("CudaPackage", (base,), {})},
                   "spack_repo.builtin.build_systems.rocm": {"ROCmPackage": type("ROCmPackage", (base,), {})}}
        modules["spack.package"]["when"] = self.when
        try:
            for name, content in modules.items():
                sys.modules[name] = types.ModuleType(name)
                vars(sys.modules[name]).update(content)
            self.package = runpy.run_path(str(recipe))["Trireme"]
        finally:
            for name in modules:
                sys.modules.pop(name, None)

    def directive(self, name):
        return lambda *words, **keywords: self.calls.setdefault(name, []).append((words, keywords, " ".join(self.around)))

    def when(self, condition):
        noted = self

        class Condition:
            def __enter__(self):
                noted.around.append(condition)

            def __exit__(self, *_):
                noted.around.pop()

        return Condition()

    def needs(self, spec, condition=None):
        return any(words[0] == spec and condition in (None, keywords.get("when"), around)
                   for words, keywords, around in self.calls["depends_on"])


def git(folder, *words):
    nobody = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    return subprocess.run(["git", "-C", str(folder), *words], env={**os.environ, **nobody}, check=True, capture_output=True,
                          text=True).stdout.strip()


def wrong_directives():
    """In a clone that has a commit and a tag, and no branch."""
    with tempfile.TemporaryDirectory() as folder:
        origin, clone = Path(folder) / "origin", Path(folder) / "clone"
        origin.mkdir()
        copied(origin)
        git(origin, "init", "-q")
        git(origin, "add", "-A")
        git(origin, "commit", "-q", "-m", "first")
        first = git(origin, "rev-parse", "HEAD")
        git(origin, "tag", "-a", "v1.2.3", "-m", "release")
        git(origin, "commit", "-q", "--allow-empty", "-m", "second")
        second = git(origin, "rev-parse", "HEAD")
        subprocess.run(["git", "clone", "-q", str(origin), str(clone)], check=True)
        git(clone, "checkout", "-q", "--detach", second)
        recipe = Directives(clone / RECIPE)
        versions = {words[0]: keywords for words, keywords, _ in recipe.calls["version"]}
        wanted = {"main": {"commit": second}, "1.2.3": {"tag": "v1.2.3", "commit": first}}
        if versions != wanted:
            yield f"versions of a clone without a branch: {versions} instead of {wanted}"
        if recipe.package.git != clone.resolve().as_uri():
            yield f"git = {recipe.package.git}"
        for spec, condition in (("pcre2+jit", None), ("kokkos cuda_arch=90", "+cuda cuda_arch=90a"),
                                ("kokkos-kernels cuda_arch=100", "+cuda cuda_arch=100f"),
                                ("kokkos cuda_arch=90", "+cuda cuda_arch=90"), ("kokkos-kernels +rocblas", "+rocm")):
            if not recipe.needs(spec, condition):
                yield f"no dependency {spec} when {condition}"
        if recipe.needs("kokkos cuda_arch=90a"):
            yield "Kokkos has no cuda_arch=90a"
        variants = {words[0]: keywords for words, keywords, _ in recipe.calls["variant"]}
        if variants["onednn"].get("when") != "~cuda ~rocm":
            yield "oneDNN, which computes on hosts, is a variant of builds for devices"
        if not variants["rccl"]["default"]:
            yield "+rocm does not use RCCL"
        tests = [name for name in vars(recipe.package) if name.startswith("test_")]
        if len(tests) < 3 or not all(getattr(recipe.package, name).__doc__ for name in tests):
            yield f"spack test has {tests}"


def main():
    failures = [*mistakes(ROOT), *wrong_directives()]
    for file, old, new, named in BREAKS:
        with tempfile.TemporaryDirectory() as folder:
            root = copied(Path(folder))
            text = (root / file).read_text()
            if old not in text:
                failures.append(f"{file} has no `{old}`: the test has to follow")
                continue
            (root / file).write_text(text.replace(old, new, 1))
            if not any(named in line for line in mistakes(root)):
                failures.append(f"{file} with `{new}` for `{old}`: no message names `{named}`")
    print("\n".join(failures) or f"no mistakes; each of {len(BREAKS)} broken copies was found out")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
