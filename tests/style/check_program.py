#!/usr/bin/env python3
"""Checks a program by its symbols and the libraries that the loader brings: check_program.py host-only|on-devices PROGRAM.

host-only   Neither Kokkos nor the start of MPI is in it, and the loader is not asked for a device's libraries. (A parallel
            HDF5 itself needs the MPI library, which is harmless until MPI_Init.)
on-devices  No kernel of Trireme's goes to a CUDA device by Kokkos' constant buffer, which makes the host wait
            (include/trireme/kernels/lanes.hpp), and NCCL is not linked but loaded.
"""
import re
import subprocess
import sys

RULES = {
    "host-only": (r"\bMPI_Init|Kokkos::|\bcuda[A-Z]|\bnccl[A-Z]", r"\[lib(kokkos|cuda|cublas|cudnn|nccl|rccl|amdhip|roc|hsa)"),
    "on-devices": (r"cuda_parallel_launch_(?:constant|global)_memory.*trireme| U r?nccl[A-Z]", r"nccl|rccl"),
}


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    rule, program = sys.argv[1:]
    forbidden_symbol, forbidden_library = RULES[rule]
    symbols = lines("nm", "--demangle", program) + lines("nm", "--demangle", "--dynamic", program)
    needed = [line for line in lines("readelf", "--dynamic", program) if "(NEEDED)" in line]
    if not any(" main" in line for line in symbols) or not needed:
        print(f"{program}: nm and readelf show neither main nor libraries: nothing was checked")
        return 1
    if rule == "on-devices" and not any("cuda_parallel_launch_local_memory" in line for line in symbols):
        print(f"{program}: nm shows no kernels: nothing was checked")
        return 1
    found = [line for line in symbols if re.search(forbidden_symbol, line)][:10]
    found += [line for line in needed if re.search(forbidden_library, line, re.IGNORECASE)]
    for line in found:
        print(f"{program}: {line.strip()}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
