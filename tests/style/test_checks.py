#!/usr/bin/env python3
"""Each check of check_sources.py finds its violation in a small tree, and nothing in a clean one."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_phrases  # noqa: E402
import check_sources  # noqa: E402
import deck_commands  # noqa: E402
import document_commands  # noqa: E402
import tutorial  # noqa: E402

DECK = """# A deck.
#   trireme tokenize a.txt -o a.h5
#   trireme check inputs/a.toml --ranks 2
#   mpiexec -n 2 trireme train inputs/a.toml \\
#       run.steps=2
[run]
# trireme draw inputs/a.toml
"""
DEVELOPMENT = "# How to\n" + "".join(f"| {floor} | `{folder}` | |\n" for folder, floor in check_sources.FLOOR.items())
CLEAN = {
    "CONTRIBUTING.md": "See [how](docs/development.md#how-to) and `src/main.cpp`.\n",
    "docs/development.md": DEVELOPMENT + "`src/NAME.cpp`, `inputs/*.toml`, `Sum.Holds`, `Norm.Holds`, `sums.hold`, `x.cpp`\n",
    "docs/notes/additions.md": "# Additions\n",
    "docs/notes/promises.md": "# Promises\n",
    "docs/tutorial.md": "[above](#top)\n\n## Top\n\n    $ ./inputs/a.toml\n",
    "tests/CMakeLists.txt": "add_test(NAME sums.hold COMMAND a)\n",
    "tests/a.cpp": "TEST(Sum, Holds) {\nTYPED_TEST(Norm, Holds) {\n",
    "src/CMakeLists.txt": "trireme_folder(base)\ntrireme_folder(deck LINKS trireme_base toml)\n",
    "src/main.cpp": "#include <trireme/train/trainer.hpp>\n",
    "src/deck/a.cpp": "#include <trireme/deck/a.hpp>\n#include <trireme/base/b.hpp>\n",
    "include/trireme/deck/a.hpp": "#pragma once\n",
    "include/trireme/grid/c.hpp": "#include <mpi.h>\n",
    "tests/support/mpi_main.cpp": "#include <mpi.h>\n",
    "inputs/a.toml": DECK,
}


class Elisions(unittest.TestCase):
    def test_an_elision_matches_any_lines(self):
        true, elision = list("abcd"), document_commands.ELISION
        for shown in [true, ["a", elision, "d"], [elision, "c", "d"], [elision, "b", elision], [elision]]:
            self.assertTrue(document_commands.shows(shown, true), shown)
        for shown in [true[:2], ["a", elision, "c"], ["b", elision], [elision, "d", "c", elision], true + ["e"]]:
            self.assertFalse(document_commands.shows(shown, true), shown)
        self.assertFalse(document_commands.shows(["a", elision, "a"], ["a"]))


class Checks(unittest.TestCase):
    def violations(self, check, **changed):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, content in {**CLEAN, **changed.get("files", {})}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            return list(check_sources.CHECKS[check](root))

    def assert_found(self, check, name, content, part):
        found = self.violations(check, files={name: content})
        self.assertEqual(len(found), 1, found)
        self.assertIn(name, found[0])
        self.assertIn(part, found[0])

    def test_clean_tree_has_no_violation(self):
        for check in check_sources.CHECKS:
            self.assertEqual(self.violations(check), [])

    def test_floors(self):
        for name, header, part in [
            ("src/deck/a.cpp", "trireme/train/x.hpp", "expected a lower floor"),
            ("src/schedule/a.cpp", "trireme/deck/x.hpp", "expected a lower floor"),
            ("include/trireme/base/x.hpp", "trireme/deck/a.hpp", "expected a lower floor"),
            ("include/trireme/deck/x.hpp", "trireme/unknown/a.hpp", "no floor"),
            ("include/trireme/unknown/x.hpp", "vector", "no floor"),
            ("src/plan/x.cpp", "Kokkos_Core.hpp", "host-only"),
            ("src/model/x.cpp", "mpi.h", "only grid/"),
            ("tests/model/x.cpp", "nccl.h", "only grid/"),
        ]:
            self.assert_found("floors", name, f"#include <{header}>\n", part)
        self.assert_found("floors", "src/CMakeLists.txt", "trireme_folder(schedule LINKS trireme_deck)\n", "lower")
        self.assert_found("floors", "src/CMakeLists.txt", "trireme_folder(io LINKS MPI::MPI_CXX)\n", "host-only")

    def test_pairs(self):
        self.assert_found("pairs", "src/deck/alone.cpp", "", "include/trireme/deck/alone.hpp")

    def test_rooms(self):
        small = "int f();\n"
        used = {"include/trireme/deck/small.hpp": small, "src/deck/b.cpp": "#include <trireme/deck/small.hpp>\n"}
        self.assertEqual(len(self.violations("rooms", files=used)), 1)
        used["src/deck/c.cpp"] = "#include <trireme/deck/small.hpp>\n"
        self.assertEqual(self.violations("rooms", files=used), [])
        member = {f"src/deck/part{i}.cpp": f"void Thing::f{i}() {{}}\n" for i in range(3)}
        self.assertIn("members of Thing", self.violations("rooms", files=member)[0])
        del member["src/deck/part0.cpp"]
        self.assertEqual(self.violations("rooms", files=member), [])

    def test_switches(self):
        switch = "  switch (kind) {{\n    case {}:\n      return 1;\n    default:\n      return 0;\n  }}\n"
        self.assert_found("switches", "src/deck/a.cpp", switch.format("Kind::one"), "a default hides")
        self.assertEqual(self.violations("switches", files={"src/deck/a.cpp": switch.format("64")}), [])

    def test_includes(self):
        self.assert_found("includes", "src/deck/a.cpp", "#include <map>\nstd::vector<int> x;\n", "without <vector>")
        header = {"include/trireme/deck/a.hpp": "#include <vector>\n"}
        for text in ("#include <trireme/deck/a.hpp>\nstd::vector<int> x;\n", "// std::vector\n", '"std::vector"\n'):
            self.assertEqual(self.violations("includes", files={"src/deck/a.cpp": text, **header}), [])

    def test_lengths(self):
        self.assert_found("lengths", "src/deck/a.cpp", "\n" * 601, "601 lines")
        self.assertEqual(self.violations("lengths", files={"src/deck/a.cpp": "\n" * 600}), [])

    def test_openings(self):
        self.assert_found("openings", "src/deck/a.cpp", "int x;\n" * 101, "expected a comment")
        for text in ("int x;\n" * 100, "// Adds.\n" + "int x;\n" * 100):
            self.assertEqual(self.violations("openings", files={"src/deck/a.cpp": text}), [])

    def test_vendors(self):
        for line in ("cudaMalloc(&p, n);", "hipStream_t s;", "cublasLtMatmul(h);", "__global__ void k();", "k<<<1>>>();"):
            self.assert_found("vendors", "src/deck/a.cpp", line, "for every device")
        for line in ("// cudaMalloc\n", 'say("ncclSend");\n', "set_cublas_threads(hipster);\n"):
            self.assertEqual(self.violations("vendors", files={"src/deck/a.cpp": line}), [])

    def test_plans(self):
        for macro in ("TRIREME_ON_DEVICE", "TRIREME_HAS_CUDNN", "TRIREME_AS_ON_DEVICE"):
            for name in ("src/plan/a.cpp", "include/trireme/plan/a.hpp", "src/architecture/a.cpp"):
                self.assert_found("plans", name, f"#ifdef {macro}\n", macro)
            self.assertEqual(self.violations("plans", files={"src/deck/a.cpp": f"#ifdef {macro}\n"}), [])

    def test_families(self):
        for line in ("if (f == Family::bert) g();", "a = m.family == other;", "switch (config.model.family) {"):
            self.assert_found("families", "src/model/a.cpp", line, "src/model/a.cpp:1: ")
        for name in ("src/deck/a.cpp", "src/architecture/a.cpp", "src/exchange/a.cpp", "include/trireme/deck/a.hpp"):
            self.assertEqual(self.violations("families", files={name: "return Family::bert;\n"}), [])
        for line in ("say(name_of(m.family));\n", "enum class Family { gpt };\n", "x();  // Family::bert\n"):
            self.assertEqual(self.violations("families", files={"src/model/a.cpp": line}), [])

    def test_names(self):
        page = CLEAN["docs/development.md"]
        for content, part in [
            (page.replace("src/NAME", "src/x/NAME"), "src/x/NAME.cpp"), (page.replace("Sum.Holds", "Sum.Held"), "Sum.Held"),
            (page.replace("Norm.Holds", "Row.Holds"), "Row.Holds"), (page.replace("sums.hold", "sums.held"), "sums.held"),
            (page.replace("| 5 | `plan`", "| 2 | `plan`"), "plan on floor 2"), (page + "[x](y.md)\n", "y.md"),
            (page + "[x](tutorial.md#below)\n", "no such heading"),
        ]:
            self.assert_found("names", "docs/development.md", content, part)
        self.assert_found("names", "docs/tutorial.md", "", "expected such a page")
        self.assert_found("names", "docs/other.md", "[x](../src/none.cpp) [y](https://none)", "src/none.cpp")
        self.assert_found("names", "docs/notes/other.md", "[x](../tutorial.md#below)", "no such heading")

    def test_decks(self):
        self.assert_found("decks", "inputs/b.toml", DECK.replace("a.toml", "b.toml").replace("check", "chek"), "check")
        self.assertEqual(len(self.violations("decks", files={"inputs/b.toml": "[run]\n"})), 3)
        self.assertEqual(self.violations("decks", files={"inputs/machines/b.toml": "[machine]\n"}), [])

    def test_commands_of_a_deck_come_from_its_leading_comment(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.toml"
            path.write_text(DECK)
            self.assertEqual(deck_commands.commands(path), [
                ("tokenize", "trireme tokenize a.txt -o a.h5"),
                ("check", "trireme check inputs/a.toml --ranks 2"),
                ("train", "mpiexec -n 2 trireme train inputs/a.toml run.steps=2"),
            ])

    def test_phrases(self):
        def found(name, text):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                return list(check_phrases.findings(Path(folder)))
        for name, text in [
            ("docs/a.md", "The norm behind the layer.\n"), ("src/a.cpp", 'say("go on with it");\n'),
            ("src/a.cpp", "int x;  // which the deck has not;\n"), ("include/a.hpp", "/// Of the rank.\nint x;\n"),
            ("inputs/a.toml", "# the key stands in the deck\n"), ("tools/a.py", "# numbers are added up\n"),
        ]:
            self.assertEqual(len(found(name, text)), 1, text)
        for name, text in [
            ("docs/a.md", "    what was behind it\n```\nbehind\n```\nfiles left behind\n"),
            ("src/a.cpp", "int behind = go_on();\n"),
            ("include/a.hpp", "/// The rank that has not been found.\n"), ("tests/a.cpp", "// behind\n"),
        ]:
            self.assertEqual(found(name, text), [], text)

    def test_names_of_tests(self):
        def found(name, text):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "tests" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                return list(check_phrases.findings_in_names(Path(folder)))
        for name in ["OfShapesAreLimited", "ThatChangeNothingContinue", "ThoseOfOtherRunsStay", "WhosePermissionIsLost",
                     "WhereNothingFitsIsAnError", "WhichRankFailedIsNamed", "GoOnAsBefore", "TrainingGoesOn",
                     "TheBatchThatPays", "DamageIsPassedOver", "NoLayoutThanWhichAnotherIsFaster", "LossesAreThoseOfOneRank",
                     "MemoryIsThatOfThePlan", "EverythingThatIsThere", "IdsAreEqualHoweverTheTextIsCut",
                     "NamesWhatIsWrong", "RefusesIntegers", "NothingStaysBehind", "BitsAddUp", "AFolderGoesAway",
                     "ValuesComeBack", "ItSaysSo", "TheFormerFileStays", "AOrBOrCOrDOrEOrFOrGIsOne"]:
            for text in (f"TEST(Damage, {name}) {{}}\n", f"\n  TYPED_TEST(Damage,\n             {name}) {{}}\n"):
                self.assertEqual(len(found("io/test_a.cpp", text)), 1, name)
        self.assertEqual(found("a.hpp", "\n\nTEST_F(A, GoOn) {\n")[0].split(" ")[0], "tests/a.hpp:3:")
        self.assertEqual(len(found("a.cpp", "TEST_P(CrossEntropyOf, MatchesReference) {}\n")), 1)
        self.assertEqual(len(found("a.py", "class A:\n    def test_a_signal_saves_and_goes_on(self):\n")), 1)
        for name in ["RestartContinuesBitForBit", "RejectsShapesAboveTheLimit", "KeepsLinesThatFit", "OffsetsOfBlocks",
                     "RecordsWhichKeysDefineTheModel", "AndroidIsNoHost", "Fp8NeedsBf16", "WhiteSpaceIsKept"]:
            self.assertEqual(found("a.cpp", f"TEST(Suite, {name}) {{}}\n"), [], name)
        for text in ("// TEST(Suite, GoOn)\n", 'say("TEST(Suite, GoOn)");\n', "TESTING(Suite, GoOn)\n"):
            self.assertEqual(found("a.cpp", text), [], text)

    def test_a_tutorial_may_show_other_figures_but_not_other_words(self):
        line = "step  20/160 epoch 0.42  loss 5.698 norm 0.62  10.2k tok/s 20% MFU  eta 0:28\n"
        another = "step 100/160 epoch 2.11  loss 4.100 norm 4.2e-5  247 tok/s  eta 1h00m\n"
        found = "found runs/tutorial/stop\n"
        peak = "peak memory of a rank: 105 MiB resident, 110,039,040 bytes\n"
        for shown, printed in [
            (line, another), (line + another + peak, line + peak.replace("105", "99.5").replace("110,039,0", "9")),
            (line + found + another + peak, line + found + peak),
        ]:
            self.assertEqual(tutorial.masked(shown), tutorial.masked(printed))
        for shown, printed in [
            (line, line.replace("norm", "form")), (line + found, line), (line + found + peak, line + peak + found),
            ("exit code 75\n", "exit code 0\n"), ("data 1 · pipeline 2\n", "data 2 · pipeline 1\n"),
            ("step        160\n", "step        120\n"), ("a/step_00000160\n", "a/step_00000120\n"),
            ("samples     2,560\n", "samples     1,920\n"), ("after step 21, 336 samples\n", "after step 9, 144 samples\n"),
            ("parameters    688,992\n", "parameters    688,993\n"), ("run  160 steps\n", "run  161 steps\n"),
        ]:
            self.assertNotEqual(tutorial.masked(shown), tutorial.masked(printed))

    def test_a_tutorial_may_show_a_run_that_stopped_after_another_step(self):
        def output(stop, samples, last=120):
            return [f"stopped early after step {stop} of 120; start again\n",
                    f"restarted from a/step_{stop:08} after step {stop}, {samples} samples\n",
                    f"checkpoint a/step_{last:08}\n"]

        def compared(shown, printed):
            of_shown, of_printed = tutorial.Masks(), tutorial.Masks()
            return [of_shown(a) == of_printed(b) for a, b in zip(shown, printed)]

        self.assertEqual(compared(output(21, "336"), output(23, "368")), [True, True, True])
        self.assertEqual(compared(output(21, "336"), output(23, "368", 160)), [True, True, False])
        self.assertEqual(compared(output(21, "336"), [*output(23, "368")[:1], *output(24, "384")[1:]]),
                         [True, False, True])

    def test_a_document_is_split_into_examples_and_text(self):
        lines = ["a", "", "    $ one", "    1", "", "    2", "    $ two", "", "b", "    c"]
        self.assertEqual(tutorial.parse(["    $ one \\", "        more", "    1"]),
                         [([], "    $ one \\\n        more", ["    1"]), ([], None, [])])
        self.assertEqual(tutorial.parse(lines), [
            (["a", ""], "    $ one", ["    1", "", "    2"]), ([], "    $ two", []), (["", "b", "    c"], None, [])])


if __name__ == "__main__":
    unittest.main()
