#!/usr/bin/env python3
"""counts.py and instructions.py themselves: names, cubins, margins, and that a difference from what is recorded ends them with 1."""
import gzip
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import counts  # noqa: E402
import instructions  # noqa: E402

KERNEL = "_ZN5tenon5flash47_GLOBAL__N__c53b956e_14_cuda_decode_cu_9790b26213decode_kernelILi4EEEvi"


def cubin(code_bytes, registers, stack):
    """Returns an ELF image with one kernel: .strtab, .symtab, .nv.info and .text."""
    names = b"\0.shstrtab\0.strtab\0.symtab\0.nv.info\0.text." + KERNEL.encode() + b"\0"
    strings = b"\0" + KERNEL.encode() + b"\0"
    symbols = bytes(24) + struct.pack("<I", 1) + bytes(20)
    info = (struct.pack("<BBHI", 3, 0x50, 0, 0)[:4] + struct.pack("<BBHII", 4, 0x2F, 8, 1, registers) +
            struct.pack("<BBHII", 4, 0x11, 8, 1, stack))
    bodies = [b"", names, strings, symbols, info, bytes(code_bytes)]
    titles = [b"", b".shstrtab", b".strtab", b".symtab", b".nv.info", b".text." + KERNEL.encode()]
    image, headers = b"", b""
    for title, body in zip(titles, bodies):
        place = 64 + len(image)
        headers += struct.pack("<IIQQQQIIQQ", names.index(title + b"\0"), 0, 0, 0, place, len(body), 0, 0, 0, 0)
        image += body
    head = bytearray(64)
    head[:4] = b"\x7fELF"
    struct.pack_into("<H", head, 18, 190)
    struct.pack_into("<Q", head, 40, 64 + len(image))
    struct.pack_into("<HH", head, 60, len(bodies), 1)
    return bytes(head) + image + headers


def program(path, line):
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


class Counts(unittest.TestCase):
    def test_names_do_not_depend_on_where_the_sources_lie(self):
        self.assertEqual(counts.short_name(KERNEL), "tenon::flash::decode_kernel")
        self.assertEqual(counts.short_name(KERNEL.replace("c53b956e", "11111111")), "tenon::flash::decode_kernel")

    def test_kernels_are_added_up_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            kind = pathlib.Path(folder) / "attention"
            kind.mkdir()
            (kind / "flash.cuda.so").write_bytes(gzip.compress(cubin(640, 40, 8)))  # images may be compressed
            (kind / "other.cubin").write_bytes(cubin(128, 90, 0))
            tools = pathlib.Path(folder) / "nvidia" / "cu13" / "bin"
            tools.mkdir(parents=True)
            nvcc = program(tools / "nvcc", "echo Cuda compilation tools, release 13.0, V13.0.88")
            program(tools / "cuobjdump", f'test "$1 $2" = "-xelf all" && gunzip < $3 > a.cubin && cp {kind}/other.cubin b.cubin')
            with unittest.mock.patch.object(sys, "path", [folder]):
                rows = list(counts.kernel_rows(folder, str(nvcc), "90a-real"))
        self.assertEqual(rows[0][-1], "nvcc 13.0.88 90a-real")
        self.assertEqual(rows[1:], [["attention.flash", "tenon::flash::decode_kernel", 2, 768, 90, 8]])

    def test_a_build_without_kernels_and_a_machine_without_cuobjdump_compare_nothing(self):
        for arguments in (["", ""], ["/bin/true", "90a-real"]):
            run = subprocess.run([sys.executable, "-S", counts.HERE / "counts.py", "kernels", "/nowhere", *arguments], text=True,
                                 stdout=subprocess.PIPE, env={"PATH": "/nowhere"})
            self.assertEqual(run.returncode, counts.NOTHING_COMPARED)
            self.assertRegex(run.stdout, "no optimized CUDA kernels" if arguments[0] == "" else "no cuobjdump: .* install")

    def test_a_difference_ends_it_with_1_and_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            recorded = "".join((counts.HERE / "programs.csv").read_text().splitlines(keepends=True)[1:])
            copy = pathlib.Path(folder) / "speed" / "nowhere" / "counts.py"
            copy.parent.mkdir(parents=True)
            copy.write_text((counts.HERE / "counts.py").read_text().replace("def program_rows(tenon):",
                            "def program_rows(tenon):\n    yield from recorded.read(pathlib.Path(tenon))\n    return"))
            shutil.copy(counts.HERE / "recorded.py", copy.parent)
            ours = pathlib.Path(folder) / "ours.csv"
            ours.write_text(recorded)
            run = lambda *more: subprocess.run([sys.executable, copy, "programs", ours, *more], text=True,
                                               stdout=subprocess.PIPE)
            self.assertEqual(run("--record").returncode, 0)
            when, written = (copy.parent / "programs.csv").read_text().split("\n", 1)
            self.assertRegex(when, r"^# recorded on \d{4}-\d\d-\d\d, after ([0-9a-f]+|no commit)$")
            self.assertEqual(written, recorded)
            self.assertEqual(run().returncode, 0)
            lines = recorded.splitlines()
            ours.write_text("\n".join([*lines[:-1], lines[-1] + "1"]) + "\n")
            other = run()
            self.assertEqual(other.returncode, 1)
            self.assertIn("- " + lines[-1] + "\n", other.stdout)
            self.assertIn("+ " + lines[-1] + "1\n", other.stdout)

    def test_instructions_may_differ_by_the_margin_and_no_more(self):
        recorded = {("tiny", "start"): 1000000, ("tiny", "decode"): 5000}
        within = {("tiny", "start"): 1049000, ("tiny", "decode"): 4760}
        self.assertEqual(instructions.differences(recorded, within), [])
        beyond = {("tiny", "start"): 1051000, ("tiny", "decode"): 4740}
        self.assertEqual(instructions.differences(recorded, beyond),
                         ["tiny decode: recorded 5000, counted 4740 (-5.2 %)",
                          "tiny start: recorded 1000000, counted 1051000 (+5.1 %)"])
        other = {("tiny", "start"): 1000000, ("tiny", "prompt"): 7}
        self.assertEqual(instructions.differences(recorded, other),
                         ["tiny decode: recorded 5000, counted None", "tiny prompt: recorded None, counted 7"])

    def test_the_recorded_instructions_are_those_of_the_pipelines(self):
        recorded = instructions.read(instructions.RECORDED)
        self.assertEqual({name for name, _ in recorded}, set(instructions.PIPELINES))
        self.assertEqual({what for _, what in recorded}, {"start", "prompt", "decode"})


if __name__ == "__main__":
    unittest.main()
