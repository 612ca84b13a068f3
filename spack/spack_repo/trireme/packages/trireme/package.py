from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *


class Trireme(CMakePackage, CudaPackage, ROCmPackage):
    """Trains transformer language models with tensor, pipeline and data parallelism, on Kokkos, MPI and HDF5."""

    # The source is the repository that contains this recipe, so that both always match.
    git = Path(__file__).resolve().parents[5].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("openmp", default=False, description="Kokkos' OpenMP back end: a rank uses the cores that it is bound to")
    variant("onednn", default=True, description="fp32 matrix products on hosts by oneDNN")
    variant("nccl", default=True, when="+cuda", description="Messages between devices by NCCL")
    variant("rccl", default=False, when="+rocm", description="Messages between devices by RCCL; not yet compiled")
    variant("tests", default=False, description="Build the tests for spack install --test=root or ctest")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("python@3.11:", type=("build", "run"))  # trireme-job reads TOML with the standard library

    depends_on("mpi")
    depends_on("hdf5@1.10:")  # only serial calls: +mpi and ~mpi both work
    depends_on("tomlplusplus")
    depends_on("cli11")
    depends_on("nlohmann-json")
    depends_on("zlib-api")
    depends_on("xxhash")
    depends_on("pcre2")
    depends_on("icu4c")
    depends_on("onednn", when="+onednn")
    depends_on("googletest", when="+tests")

    depends_on("kokkos@3.4:4")  # 5 has not been tested
    depends_on("kokkos-kernels scalars=float,double")
    for host_back_end in ("+openmp", "~openmp"):
        depends_on(f"kokkos{host_back_end}", when=host_back_end)

    with when("+cuda"):
        # +wrapper with every compiler: if only GCC required it, the solver would choose clang to avoid it.
        depends_on("kokkos@4.6: +cuda +wrapper +serial cxxstd=20")
        depends_on("kokkos-kernels +cuda")
        depends_on("cuda@12.2:")
        depends_on("kokkos@4.7.01:", when="^cuda@13:")
        # The build needs its header. The first job with several ranks loads the library from this prefix.
        depends_on("nccl", when="+nccl")
        conflicts("cuda_arch=none", msg="name the device, such as cuda_arch=90; Kokkos takes one architecture")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"kokkos cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
        depends_on(f"kokkos-kernels cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
        depends_on(f"nccl cuda_arch={arch}", when=f"+cuda +nccl cuda_arch={arch}")

    with when("+rocm"):
        depends_on("kokkos@4.6: +rocm +serial cxxstd=20")
        conflicts("amdgpu_target=none", msg="name the device, such as amdgpu_target=gfx90a; Kokkos takes one")
    for target in ROCmPackage.amdgpu_targets:
        depends_on(f"kokkos amdgpu_target={target}", when=f"+rocm amdgpu_target={target}")
        depends_on(f"rccl amdgpu_target={target}", when=f"+rocm +rccl amdgpu_target={target}")

    conflicts("+cuda", when="+rocm", msg="Kokkos supports one device back end per build")
    conflicts("%gcc@:11", msg="Trireme is C++20 and tested with GCC 12 and newer")
    conflicts("%clang@:13", msg="Trireme is C++20 and tested with clang 14 and newer")

    def cmake_args(self):
        args = [
            self.define_from_variant("TRIREME_TESTS", "tests"),
            self.define_from_variant("TRIREME_ONEDNN", "onednn"),
            self.define("TRIREME_BENCHMARKS", False),
            self.define("TRIREME_NATIVE", False),  # Spack's compiler wrappers add the target's -march
        ]
        for variant, back_end in (("+cuda", "CUDA"), ("+rocm", "HIP")):
            if self.spec.satisfies(variant):
                args.append(self.define("TRIREME_BACK_END", back_end))
        if self.spec.satisfies("+cuda"):
            args.append(self.define("TRIREME_CUBLASLT", True))  # every CUDA toolkit has it
        args.append(self.define("TRIREME_NCCL", self.spec.satisfies("+nccl") or self.spec.satisfies("+rccl")))
        if self.spec.satisfies("+rocm"):
            args.append(self.define("CMAKE_CXX_COMPILER", self.spec["hip"].hipcc))
        return args
