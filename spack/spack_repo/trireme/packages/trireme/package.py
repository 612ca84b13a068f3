# Copyright Trireme maintainers
#
# SPDX-License-Identifier: Apache-2.0
import subprocess
from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *

CLONE = Path(__file__).resolve().parents[5]


def of_clone(*words):
    """What git says about the repository that contains this recipe; empty if there is none."""
    try:
        command = ["git", "-C", str(CLONE), *words]
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return ""
    return said.stdout.decode().strip() if said.returncode == 0 else ""


def releases():
    """Tag and commit of each release of this clone."""
    form = "--format=%(refname:strip=2) %(objectname) %(*objectname)"
    for line in of_clone("for-each-ref", form, "refs/tags/v*").splitlines():
        name, *objects = line.split()  # an annotated tag is followed by its commit
        yield name, objects[-1]


class Trireme(CMakePackage, CudaPackage, ROCmPackage):
    """Trains transformer language models with tensor, pipeline and data parallelism, on Kokkos,
    MPI and HDF5."""

    # The source is the commit of the repository that contains this recipe, so that both match,
    # also where that repository is a clone of one commit or tag and has no branch.
    git = CLONE.as_uri()

    license("Apache-2.0")

    version("main", commit=of_clone("rev-parse", "HEAD") or None)
    for release, release_commit in releases():
        version(release[1:], tag=release, commit=release_commit)

    variant("openmp", default=False, description="Kokkos' OpenMP back end: several cores per rank")
    variant(
        "onednn",
        default=True,
        when="~cuda ~rocm",
        description="fp32 matrix products on hosts by oneDNN",
    )
    variant("nccl", default=True, when="+cuda", description="Messages between devices by NCCL")
    variant("rccl", default=True, when="+rocm", description="Messages between devices by RCCL")
    variant("images", default=True, description="PNG and JPEG files in trireme tokenize")
    variant("tests", default=False, description="Build the tests for spack install --test=root")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("python@3.6:", type=("build", "run"))  # trireme-job and other scripts
    depends_on("python@3.11:", type="build", when="+tests")

    depends_on("mpi")
    depends_on("hdf5@1.10:")  # only serial calls: +mpi and ~mpi both work
    depends_on("tomlplusplus")
    depends_on("cli11")
    depends_on("nlohmann-json")
    depends_on("zlib-api")
    depends_on("xxhash")
    depends_on("pcre2+jit")  # tokenizing takes 2.4 times as long without
    depends_on("icu4c@60:")
    depends_on("onednn", when="+onednn")
    depends_on("libpng@1.6:", when="+images")
    depends_on("libjpeg-turbo", when="+images")
    depends_on("googletest", when="+tests")

    depends_on("kokkos@3.4:4")  # 5 has not been tested
    depends_on("kokkos-kernels scalars=float,double")
    for host_back_end in ("+openmp", "~openmp"):
        depends_on(f"kokkos{host_back_end}", when=host_back_end)

    with when("+cuda"):
        # +wrapper with every compiler: if only GCC required it, the solver would choose clang to
        # avoid it.
        depends_on("kokkos@4.6: +cuda +wrapper +serial cxxstd=20")
        depends_on("kokkos-kernels +cuda")
        depends_on("cuda@12.2:")
        # Older ones give kernels wrong arguments (include/trireme/tensor/kernel_arguments.hpp).
        depends_on("kokkos@4.7.02:", when="^cuda@12.9:")
        # The build needs its header. The first job with several ranks loads the library from this
        # prefix.
        depends_on("nccl", when="+nccl")
        conflicts(
            "cuda_arch=none",
            msg="name the device, such as cuda_arch=90; Kokkos takes one architecture",
        )
    for arch in CudaPackage.cuda_arch_values:
        # Kokkos knows 90 and not 90a. Trireme compiles its own kernels for 90a in both cases.
        plain = arch.rstrip("af")
        depends_on(f"kokkos cuda_arch={plain}", when=f"+cuda cuda_arch={arch}")
        depends_on(f"kokkos-kernels cuda_arch={plain}", when=f"+cuda cuda_arch={arch}")
        depends_on(f"nccl cuda_arch={plain}", when=f"+cuda +nccl cuda_arch={arch}")

    with when("+rocm"):
        depends_on("kokkos@4.6: +rocm +serial cxxstd=20")
        depends_on("kokkos-kernels +rocblas")
        conflicts(
            "amdgpu_target=none",
            msg="name the device, such as amdgpu_target=gfx90a; Kokkos takes one",
        )
    for target in ROCmPackage.amdgpu_targets:
        depends_on(f"kokkos amdgpu_target={target}", when=f"+rocm amdgpu_target={target}")
        depends_on(f"rccl amdgpu_target={target}", when=f"+rocm +rccl amdgpu_target={target}")

    conflicts("+cuda", when="+rocm", msg="Kokkos supports one device back end per build")
    conflicts("%gcc@:11", msg="Trireme is C++20 and tested with GCC 12 and newer")
    conflicts("%clang@:13", msg="Trireme is C++20 and tested with clang 14 and newer")
    conflicts("platform=windows", msg="Trireme runs on Linux")
    conflicts("platform=darwin", msg="Trireme runs on Linux")

    def cmake_args(self):
        spec = self.spec
        args = [
            self.define_from_variant("TRIREME_TESTS", "tests"),
            self.define("TRIREME_ONEDNN", spec.satisfies("+onednn")),
            self.define("TRIREME_PNG", spec.satisfies("+images")),
            self.define("TRIREME_JPEG", spec.satisfies("+images")),
            self.define("TRIREME_BENCHMARKS", False),
            self.define("TRIREME_NATIVE", False),  # Spack's compiler wrappers add -march
        ]
        for device, back_end in (("+cuda", "CUDA"), ("+rocm", "HIP")):
            if spec.satisfies(device):
                args.append(self.define("TRIREME_BACK_END", back_end))
        if spec.satisfies("+cuda"):
            args.append(self.define("TRIREME_CUBLASLT", True))  # every CUDA toolkit has it
        args.append(
            self.define("TRIREME_NCCL", spec.satisfies("+nccl") or spec.satisfies("+rccl"))
        )
        if spec.satisfies("+rocm"):
            args.append(self.define("CMAKE_CXX_COMPILER", spec["hip"].hipcc))
        return args

    def test_version(self):
        """the program starts and names its version"""
        trireme = Executable(join_path(self.prefix.bin, "trireme"))
        out = trireme("--version", output=str.split, error=str.split)
        assert "trireme" in out and "Kokkos" in out

    def test_check(self):
        """an installed deck resolves for two ranks"""
        trireme = Executable(join_path(self.prefix.bin, "trireme"))
        deck = join_path(self.prefix.share, "trireme", "inputs", "tiny.toml")
        out = trireme("check", deck, "--ranks", "2", output=str.split, error=str.split)
        assert "ranks" in out

    def test_train(self):
        """two steps of training on one rank"""
        trireme = Executable(join_path(self.prefix.bin, "trireme"))
        page = join_path(self.prefix.share, "doc", "trireme", "README.md")
        trireme("tokenize", page, "-o", "tokens.h5")
        deck = join_path(self.prefix.share, "trireme", "inputs", "tiny.toml")
        overrides = ["data.train=tokens.h5", "run.steps=2", "run.directory=run"]
        trireme("train", deck, *overrides, "optimizer.warmup_steps=1")
        with open(join_path("run", "metrics.jsonl")) as metrics:
            assert '"step":2' in metrics.read().replace(" ", "")

    def test_job(self):
        """trireme-job writes a job script for the installed deck"""
        job = Executable(join_path(self.prefix.bin, "trireme-job"))
        deck = join_path(self.prefix.share, "trireme", "inputs", "tiny.toml")
        out = job(deck, "--ranks-per-node", "1", "--time", "01:00:00", output=str.split)
        assert out.startswith("#!/bin/bash")
