#!/usr/bin/python3
"""The figures of sass.py, on code written by hand."""
import unittest

import sass


def text_of(*lines, target="sm_90"):
    body = "\n".join(f"        /*{16 * n:04x}*/                   {line} ;      /* 0x0000 */\n"
                     "                                              /* 0x000f */"
                     for n, line in enumerate(lines))
    return f"code for {target}\n\t.target\t{target}\n\n\t\tFunction : _Z4kernv\n\t.headerflags\n{body}\n"


def kernel(*lines, **options):
    return sass.kernels_of(text_of(*lines, **options))[0]


WAIT = ("ACQBULK", "PREEXIT")


class SassFigures(unittest.TestCase):

    def test_instructions_are_read_with_predicates_and_modifiers(self):
        k = kernel(*WAIT, "@!P0 LDG.E.128 R4, desc[UR4][R2.64+0x10]", "LDG.E R9, desc[UR4][R2.64]", "EXIT")
        self.assertEqual((k.mangled, k.architecture), ("_Z4kernv", "sm_90"))
        self.assertEqual((len(k.code), k.count("LDG"), k.wide("LDG")), (5, 2, 1))
        self.assertEqual(k.code[2].predicate, "!P0")

    def test_a_chain_of_loads_is_followed_through_registers(self):
        k = kernel(*WAIT, "LDG.E R4, desc[UR4][R2.64]", "IMAD.WIDE R6, R4, R5, c[0x0][0x210]",
                   "LDG.E.64 R8, desc[UR4][R6.64]", "LDG.E R10, desc[UR4][R8.64]", "LDG.E R11, desc[UR4][R2.64]")
        self.assertEqual(sass.load_chain(k), 3)

    def test_a_register_that_is_written_again_ends_a_chain(self):
        k = kernel(*WAIT, "LDG.E R4, desc[UR4][R2.64]", "MOV R4, RZ", "LDG.E R8, desc[UR4][R4.64]")
        self.assertEqual(sass.load_chain(k), 1)
        k = kernel(*WAIT, "LDG.E R4, desc[UR4][R2.64]", "@P0 MOV R4, RZ", "LDG.E R8, desc[UR4][R4.64]")
        self.assertEqual(sass.load_chain(k), 2)

    def test_the_main_loop_is_the_innermost_with_most_tensor_instructions(self):
        mma = "HMMA.16816.F32.BF16 R4, R8, R12, R4"
        k = kernel(*WAIT, "MOV R1, R2", mma, "NOP", mma, "@P0 BRA 0x30", "NOP", "@P1 BRA 0x20", "EXIT")
        self.assertEqual(sass.instructions_per_mma(k), 2.0)  # 4 instructions, 2 of them HMMA
        self.assertEqual(sass.instructions_per_mma(kernel(*WAIT, mma, "EXIT")), 4.0)
        self.assertEqual(sass.instructions_per_mma(kernel(*WAIT, "EXIT")), 0.0)

    def test_what_no_kernel_may_have_is_found(self):
        store = "STG.E desc[UR4][R2.64], R4"
        self.assertEqual(list(sass.faults(kernel(*WAIT, store, "EXIT"))), [])
        for target in ("sm_80", "sm_89"):
            self.assertEqual(list(sass.faults(kernel(store, "EXIT", target=target))), [])
        for target in ("sm_90a", "sm_100", "sm_120"):
            self.assertIn("never waits", " ".join(sass.faults(kernel(store, "EXIT", target=target))))
        for code, words in [((*WAIT, "STL [R1], R4"), "local memory"), (("LDL R4, [R1]", *WAIT), "local memory"),
                            ((store, "EXIT"), "never waits"), ((store, *WAIT), "STG.E at 0x0, before it waits"),
                            (("PREEXIT", "ACQBULK"), "PREEXIT at 0x0, before it waits")]:
            with self.subTest(words):
                self.assertIn(words, " ".join(sass.faults(kernel(*code))))


if __name__ == "__main__":
    unittest.main()
