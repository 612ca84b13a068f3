"""The recipe has no mistakes, and each kind of mistake, put into a copy, is found."""
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_recipe import RECIPE, mistakes  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CPU = "spack/environments/cpu/spack.yaml"
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
    (CPU, "trireme@main +onednn", "trireme@1.0 +onednn", "no version 1.0"),
    (CPU, "+onednn", "+mkl", "no variant mkl"),
    (CPU, "path: ../../..", "path: ../..", "CMakeLists.txt"),
    ("spack-repo-index.yaml", "spack_repo/trireme", "spack_repo/galley", "has no repo.yaml"),
]


def copied(folder):
    for path in ("spack", "cmake"):
        shutil.copytree(ROOT / path, folder / path, ignore=shutil.ignore_patterns(".spack-env", "spack.lock"))
    for path in ("CMakeLists.txt", "spack-repo-index.yaml"):
        shutil.copy(ROOT / path, folder / path)
    return folder


def main():
    failures = mistakes(ROOT)
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
