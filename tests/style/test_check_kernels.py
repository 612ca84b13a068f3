#!/usr/bin/env python3
"""check_kernels.py finds its violations in the text that cuobjdump prints."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_kernels import Page, parse, violations  # noqa: E402

PAGE = """CUDA 13.0, sm_90, and more.

| K of `FlashForward` | threads, blocks per SM | HMMA | LDSM | bf16 | bf16, dropout |
|---|---|---|---|---|---|
| 64 | 128, 3 | 2 | 1 | 167 | 168, 56 B |

| K of `GroupForward` | threads, blocks per SM | HGMMA | bf16 | bf16, dropout |
|---|---|---|---|---|
| 64 | 512, 1 | 2 | 128 | – |
| 64, dropout | 384, 1 | 1 | – | 168, 16 B |
"""
FORWARD = "void run_on_cuda<FlashForward<trireme::Bf16, 64, false> >(Arguments)"
DROPPING = "void run_on_cuda<FlashForward<trireme::Bf16, 64, true> >(Arguments)"
GROUPS = "void run_groups_on_cuda<trireme::kernels::GroupForward<trireme::Bf16, 64, false> >(Arguments)"
DROPPING_GROUPS = GROUPS.replace("false", "true")
ROW = "void launch<RowBody<embedding_lookup<Bf16>(Cuda const&)> >()"
GROUP_PRODUCTS = ["HGMMA.64x128x16.F32.BF16", "HGMMA.64x64x16.F32.BF16"]
PRODUCTS = ["HMMA.16816.F32.BF16", "LDSM.16.M88.4", "HMMA.16816.F32.BF16"]


def resources(name, registers=40, frame=0, arch="sm_90"):
    return (f"Fatbin elf code:\narch = {arch}\ncode version = [1,8]\n\nResource usage:\n Function {name}:\n"
            f"  REG:{registers} STACK:{frame} SHARED:1024 LOCAL:0 CONSTANT[0]:672 TEXTURE:0\n")


def code(name, instructions, arch="sm_90"):
    lines = "".join(f"        /*{16 * i:04x}*/     {'@!P0 ' if i % 2 else ''}{name} R1, R2 ;    /* 0x0000 */\n"
                    "                                               /* 0x0001 */\n"
                    for i, name in enumerate(instructions))
    return f"Fatbin elf code:\narch = {arch}\n\n\t\tFunction : {name}\n\t.headerflags @\"EF\"\n{lines}\n"


class Checks(unittest.TestCase):
    def found(self, name, instructions, registers=40, frame=0, arch="sm_90", toolkit="13.0", page=PAGE, some=True):
        # Names in cuobjdump's output have no spaces: `demangle` gives this one.
        kernels = parse(resources("_Z1f", registers, frame, arch), code("_Z1f", instructions, arch),
                        lambda names: [name for _ in names])
        self.assertEqual(len(kernels), 1)
        return list(violations(kernels, Page(page), toolkit, some))

    def assert_one(self, part, *arguments, **named):
        found = self.found(*arguments, **named)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_documented_kernels_have_no_violation(self):
        self.assertEqual(self.found(FORWARD, PRODUCTS, registers=167), [])
        self.assertEqual(self.found(DROPPING, PRODUCTS, registers=168, frame=56), [])
        self.assertEqual(self.found(ROW, ["LDG.E.128", "STG.E.EF.128", "LDG.E.U16"]), [])
        self.assertEqual(self.found("void launch<TurnByPacks<float> >()", ["LDG.E.128", "STG.E.64", "LD.E"], frame=40), [])

    def test_frames(self):
        self.assert_one("a stack frame of 8 bytes, expected at most 0", ROW, ["LDG.E.128", "STG.E.128"], frame=8)
        self.assert_one("a stack frame of 48 bytes, expected at most 40", "void launch<TurnByPacks<float> >()",
                        ["LDG.E.128", "STG.E.128"], frame=48)
        self.assert_one("a stack frame of 136 bytes, expected at most 128", FORWARD, PRODUCTS, frame=136, toolkit="12.4")

    def test_accesses(self):
        self.assert_one("at most 32 and 128 bits", ROW, ["LDG.E", "STG.E.128"])
        self.assert_one("at most 64 and 64 bits", ROW, ["LDG.E.64", "STG.E.64"])
        self.assert_one("at most 128 and 0 bits", ROW, ["LDG.E.128"])
        self.assert_one("generic loads", ROW, ["LDG.E.128", "STG.E.128", "LD.E.128"])

    def test_tables(self):
        self.assert_one("registers and frame 168, expected 167", FORWARD, PRODUCTS, registers=168)
        self.assert_one("registers and frame 167, 8 B, expected 167", FORWARD, PRODUCTS, registers=167, frame=8)
        self.assert_one("1 times HMMA, expected 2", FORWARD, PRODUCTS[:2], registers=167)
        self.assert_one("0 times LDSM, expected 1", FORWARD, PRODUCTS[::2], registers=167)
        self.assert_one("3 blocks of 128 threads do not fit", FORWARD, PRODUCTS, registers=176, toolkit="12.4")
        self.assertEqual(self.found(FORWARD, PRODUCTS, registers=160, frame=24, toolkit="12.4"), [])
        self.assertEqual(self.found(FORWARD, PRODUCTS, registers=160, frame=24, arch="sm_80"), [])

    def test_kernels_of_warpgroups(self):
        self.assertEqual(self.found(GROUPS, GROUP_PRODUCTS, registers=128, arch="sm_90a"), [])
        self.assertEqual(self.found(DROPPING_GROUPS, GROUP_PRODUCTS[:1], registers=168, frame=16, arch="sm_90a"), [])
        self.assert_one("1 times HGMMA, expected 2", GROUPS, GROUP_PRODUCTS[:1], registers=128, arch="sm_90a")
        self.assert_one("2 times HGMMA, expected 1", DROPPING_GROUPS, GROUP_PRODUCTS, registers=168, frame=16,
                        arch="sm_90a")
        self.assert_one("registers and frame 128, 8 B, expected 128", GROUPS, GROUP_PRODUCTS, registers=128, frame=8,
                        arch="sm_90a")
        self.assert_one("registers and frame 168, expected 168, 16 B", DROPPING_GROUPS, GROUP_PRODUCTS[:1],
                        registers=168, arch="sm_90a")
        self.assert_one("a stack frame of 136 bytes, expected at most 128", DROPPING_GROUPS, GROUP_PRODUCTS[:1],
                        registers=168, frame=136, arch="sm_90a", toolkit="12.4")

    def test_arguments(self):
        self.assert_one("the constant buffer", "void Kokkos::Impl::cuda_parallel_launch_constant_memory<trireme::A>()", [])

    def test_missing_kernels_are_a_violation(self):
        self.assert_one("names no toolkit", ROW, ["LDG.E.128", "STG.E.128"], page="nothing")
        found = self.found(ROW, ["LDG.E.128", "STG.E.128"], some=False)
        self.assertTrue(any("no kernel FlashForward with K = 64" in line for line in found), found)
        self.assertTrue(any("no kernel GroupForward with K = 64, dropout" in line for line in found), found)
        self.assertTrue(any("no kernel TurnByPacks<" in line for line in found), found)


if __name__ == "__main__":
    unittest.main()
