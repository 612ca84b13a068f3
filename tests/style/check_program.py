#!/usr/bin/env python3
"""Checks that a program is host-only: check_program.py PROGRAM.

Neither Kokkos nor the start of MPI is in it, and the loader is not asked for a device's libraries. (A parallel HDF5
itself needs the MPI library, which is harmless until MPI_Init.)
"""
import re
import subprocess
import sys

FORBIDDEN_SYMBOL = re.compile(r"\bMPI_Init|Kokkos::|\bcuda[A-Z]|\bnccl[A-Z]")
FORBIDDEN_LIBRARY = re.compile(r"kokkos|cuda|nccl|hip|rocm", re.IGNORECASE)


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    program = sys.argv[1]
    symbols = lines("nm", "--demangle", program) + lines("nm", "--demangle", "--dynamic", program)
    needed = [line for line in lines("readelf", "--dynamic", program) if "(NEEDED)" in line]
    if not any(" main" in line for line in symbols) or not needed:
        print(f"{program}: nm and readelf show neither main nor libraries: nothing was checked")
        return 1
    found = [line for line in symbols if FORBIDDEN_SYMBOL.search(line)][:10]
    found += [line for line in needed if FORBIDDEN_LIBRARY.search(line)]
    for line in found:
        print(f"{program}: {line.strip()}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
