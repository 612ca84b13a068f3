#!/usr/bin/env python3
"""The Apptainer definition and the EasyBuild recipes of packaging/, as far as they can be checked without these programs.

    test_packaging.py --bin FOLDER
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = ROOT / "packaging/apptainer/trireme.def"
SECTIONS = {"files", "post", "environment", "runscript", "test", "labels", "help"}
SCRIPTS = ("post", "environment", "runscript", "test")
# Names of EasyBuild for the packages that cmake/TriremeDependencies.cmake names as Spack does; None: not in a build with foss.
EASYBUILD = {"kokkos": "Kokkos", "kokkos-kernels": "Kokkos-Kernels", "hdf5": "HDF5", "tomlplusplus": "tomlplusplus", "cli11": "CLI11",
             "nlohmann-json": "nlohmann_json", "zlib-ng": "zlib", "xxhash": "xxHash", "pcre2": "PCRE2", "icu4c": "ICU", "mpich": None,
             "libpng": "libpng", "libjpeg-turbo": "libjpeg-turbo",
             "googletest": None, "benchmark": None, "onednn": None, "nccl": None, "rccl": None, "cuda": None}
options = None


def output_of(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout


def stages():
    """Header and sections of each stage."""
    found = []
    section = None
    for number, line in enumerate(DEFINITION.read_text().splitlines(), 1):
        if header := re.fullmatch(r"(Bootstrap|From|Stage): (\S+)", line):
            if header[1] == "Bootstrap":
                found.append({"header": {}, "sections": {}})
                section = None
            assert section is None, f"line {number}: a header inside of a section"
            found[-1]["header"][header[1]] = header[2]
        elif start := re.fullmatch(r"%(\w+)(?: from (\w+))?", line):
            assert start[1] in SECTIONS, f"line {number}: unknown section {line}"
            section = found[-1]["sections"].setdefault(start[1], [])
        elif section is not None:
            section.append(line)
        else:
            assert not line or line.startswith("#"), f"line {number}: outside of a section: {line}"
    return found


def packages(stage):
    """What the stage's %post installs."""
    text = "\n".join(stage["sections"]["post"]).replace("\\\n", " ")
    return re.search(r"apt-get install ([^\n]*)", text)[1].replace("--yes --no-install-recommends", "").split()


class Apptainer(unittest.TestCase):
    def test_two_stages_of_debian_12(self):
        self.assertEqual([stage["header"] for stage in stages()],
                         [{"Bootstrap": "docker", "From": "debian:12", "Stage": name} for name in ("build", "final")])

    def test_sections_are_posix_shell(self):
        for stage in stages():
            for name in SCRIPTS:
                text = "\n".join(stage["sections"].get(name, []))
                for shell in filter(shutil.which, ("dash", "bash")):
                    said = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
                    self.assertEqual((said.returncode, said.stderr), (0, ""), f"%{name}, {shell}")
                self.assertNotRegex(text, r"\[\[|<<<|(?m:^\s*(?:function|local|source) )|=\(|\bpipefail", f"%{name}: only bash has this")

    def test_all_files_that_the_build_reads_are_copied(self):
        pairs = [line.split() for line in stages()[0]["sections"]["files"] if line.strip()]
        for source, target in pairs:  # Apptainer takes one source in a line
            self.assertTrue((ROOT / source).exists(), source)
            self.assertEqual(target, f"/source/{source}")
        copied = {source for source, _ in pairs}
        read = set(re.findall(r"PROJECT_SOURCE_DIR\}/(\w+)", (ROOT / "src/CMakeLists.txt").read_text()))
        read |= set(re.search(r"foreach\(file ([^)]*)\)", (ROOT / "src/CMakeLists.txt").read_text())[1].split())
        self.assertLessEqual(read, copied)

    def test_packages_of_the_build_stage_are_in_tools_setup(self):
        known = re.search(r"^packages=\((.*?)^\)", (ROOT / "tools/setup").read_text(), re.MULTILINE | re.DOTALL)[1].split()
        self.assertLessEqual(set(packages(stages()[0])), set(known))

    def test_debian_has_the_packages(self):
        if "VERSION_ID=\"12\"" not in Path("/etc/os-release").read_text() or not output_of("apt-cache", "search", "^libtrilinos-kokkos"):
            self.skipTest("not Debian 12, or no list of its packages (apt-get update)")
        wanted = sorted(set(packages(stages()[0]) + packages(stages()[1])))
        found = set(re.findall(r"^Package: (\S+)", output_of("apt-cache", "show", "--no-all-versions", *wanted), re.MULTILINE))
        self.assertEqual(set(wanted) - found, set())

    def test_the_final_stage_has_all_libraries(self):
        mine = output_of("ldd", options.bin / "trireme-engine")
        if "libtrilinos-kokkos" not in output_of("dpkg-query", "--show"):
            self.skipTest("this build does not use Debian's packages")
        closure, todo = set(), packages(stages()[1])
        depends = dict(line.split("|", 1) for line in output_of(
            "dpkg-query", "--show", "--showformat", "${Package}|${Pre-Depends}, ${Depends}\n").splitlines() if "|" in line)
        while todo:
            package = todo.pop()
            if package not in closure and package in depends:
                closure.add(package)
                todo += re.findall(r"(?:^|, |\| )([a-z0-9][a-z0-9.+-]+)", depends[package])
        for path in re.findall(r"=> (/\S+)", mine):
            names = {path, str(Path(path).resolve())}
            said = subprocess.run(["dpkg-query", "--search", *names, *(name.removeprefix("/usr") for name in names)],
                                  capture_output=True, text=True).stdout
            owners = set(re.findall(r"^([^:\s]+)(?::\w+)?: /", said, re.MULTILINE))
            if owners:  # a library of another source is not Debian's
                self.assertTrue(owners & closure, f"{path}: no package of the final stage brings {owners}")

    def library(self, centre):
        """The MPI library of trireme-engine with the container's environment, where `centre` is /opt/centre."""
        lines = [line for line in stages()[1]["sections"]["environment"] if "LD_LIBRARY_PATH" in line]
        script = "\n".join(lines).replace("/opt/centre", str(centre)) + '\nexec ldd "$0"'
        said = output_of("sh", "-c", script, options.bin / "trireme-engine")
        found = re.search(r"libmpich\.so\.12 => (\S+)", said)
        if not found:
            self.skipTest("this build does not use Debian's MPICH")
        return found[1]

    def test_a_bound_mpi_replaces_debians_mpi(self):
        link = re.search(r"ln -s (\S+) /opt/centre/(\S+)", "\n".join(stages()[1]["sections"]["post"]))
        with tempfile.TemporaryDirectory() as folder:
            centre = Path(folder)
            (centre / link[2]).parent.mkdir()
            (centre / link[2]).symlink_to(link[1])
            debian = self.library(centre)
            self.assertTrue(debian.startswith(("/lib", "/usr/lib")), debian)
            (centre / "mpi").mkdir()
            shutil.copy(Path(debian).resolve(), centre / "mpi/libmpi.so.12")
            self.assertEqual(self.library(centre), str(centre / link[2]))
            self.assertEqual(Path(self.library(centre)).resolve(), centre / "mpi/libmpi.so.12")

    def test_only_functions_of_mpi_3_are_called(self):
        """The ABI that MPICH, Intel MPI, MVAPICH and Cray MPICH share has no function of MPI 4."""
        names = re.findall(r" U (MPI_\w+)", output_of("nm", "--dynamic", options.bin / "trireme-engine"))
        self.assertGreater(len(names), 10)
        later = [name for name in names if re.search(r"_c$|_init$|Session|Psend|Precv|Pready|Parrived|Isendrecv|Info_get_string|"
                                                     r"Comm_create_from_group|idup_with_info", name)]
        self.assertEqual(later, [])


class EasyBuild(unittest.TestCase):
    def recipes(self):
        for path in sorted((ROOT / "packaging/easybuild").glob("*.eb")):
            values = {"SOURCE_TAR_GZ": "%(name)s-%(version)s.tar.gz"}
            exec(compile(path.read_text(), str(path), "exec"), values)
            yield path, values

    def test_file_names_match_modules(self):
        for path, values in self.recipes():
            toolchain = values["toolchain"]
            self.assertEqual(path.name, f"{values['name']}-{values['version']}-{toolchain['name']}-{toolchain['version']}.eb")
            self.assertLessEqual({"easyblock", "homepage", "description", "sources", "checksums", "moduleclass"}, values.keys())
            self.assertEqual(len(values["sources"]), len(values["checksums"]))

    def test_the_version_matches_the_build(self):
        version = re.search(r"project\(trireme VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        own, = (values for path, values in self.recipes() if path.name.startswith("Trireme"))
        self.assertEqual(own["version"], version)

    def test_all_dependencies_of_the_build_are_named(self):
        cmake = (ROOT / "cmake/TriremeDependencies.cmake").read_text()
        needed = re.findall(r'^\s*trireme_need\("\$\{\w+\}"\s+"[^"]*"\s+(?:"[^"]*"|\S+)\s+([\w-]+)', cmake, re.MULTILINE)
        self.assertGreater(len(needed), 9)
        own, = (values for path, values in self.recipes() if path.name.startswith("Trireme"))
        named = {entry[0] for entry in own["dependencies"] + own["builddependencies"]}
        for package in needed:
            self.assertTrue(EASYBUILD[package] is None or EASYBUILD[package] in named, package)

    def test_options_exist_in_the_build(self):
        known = set(re.findall(r"^(?:option\(|set\()(TRIREME_\w+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE))
        own, = (values for path, values in self.recipes() if path.name.startswith("Trireme"))
        self.assertLessEqual(set(re.findall(r"-D(TRIREME_\w+)", own["configopts"])), known)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, type=Path)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
