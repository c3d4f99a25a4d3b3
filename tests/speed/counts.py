#!/usr/bin/env python3
"""What steps and kernels cost, by counts that no busy machine changes, beside what is recorded.

    counts.py programs TENON [--record]          operations, bytes and floating-point operations of steps on the CPU
    counts.py kernels PLUGINS NVCC ARCHITECTURES [--record | --quick]
                                                 code, registers and stack of the CUDA kernels in a build's plugins

Each compares with the CSV file beside it that has its name; any difference is printed and ends it with 1. A change that means to change
a count records it anew (--record) and says in its commit what became better or worse. Exit code 77 means that nothing could be compared.

programs: what `tenon inspect --program` says, added up by component and op: from the cost that each op states of itself. The
instruction set and the threads are stated, so that every machine counts the same.
kernels: read from the cubins that cuobjdump takes out of the libraries (tests/speed/requirements.txt has it). The code depends on the
CUDA compiler and on the GPU, so another release or architecture than the recorded one compares nothing, and neither does a build
without CUDA or without optimization, whose NVCC is "". Of a build with TENON_CUDA_QUICK (--quick) attentions and schemes that
were not assembled are left out.
"""
import collections
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import recorded

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NOTHING_COMPARED = 77

FIXED = ["device.isa=baseline", "device.threads=2", "kv_cache.capacity=4096"]
STEPS = {"decode": ["--rows", "1", "--context", "1024"], "prompt": ["--rows", "512", "--context", "256"]}
PIPELINES = {  # name: (model, what is set)
    "1b-none": ("synthetic:llama-3.2-1b", ["quantization.use=none"]),
    "1b-int8wo": ("synthetic:llama-3.2-1b", ["quantization.use=int8wo"]),
    "1b-int4wo": ("synthetic:llama-3.2-1b", ["quantization.use=int4wo"]),
    "1b-int8-cache": ("synthetic:llama-3.2-1b", ["quantization.use=int4wo", "kv_cache.use=int8"]),
    "1b-reference": ("synthetic:llama-3.2-1b",
                     ["quantization.use=int4wo", "attention.use=reference", "kv_cache.format=fp32"]),
    "7b-int4wo": ("synthetic:llama-2-7b", ["quantization.use=int4wo"]),
    "tiny-gguf": ("tests/golden/data/tiny-gguf-mixed/tiny-gguf-mixed.gguf",
                  ["quantization.use=gguf", "kv_cache.capacity=512"]),
}


def program_rows(tenon):
    yield ["pipeline", "step", "component", "op", "calls", "bytes_read", "bytes_written", "flops"]
    for name, (model, settings) in PIPELINES.items():
        for step, size in STEPS.items():
            command = [tenon, "inspect", "--program", model, "--json", *size]
            for setting in FIXED + settings:
                command += ["--set", setting]
            done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}: {done.stderr}")
            program = json.loads(done.stdout)
            sums = collections.defaultdict(lambda: [0, 0, 0, 0])
            for op in program["ops"]:
                sum_of = sums[op["component"], op["op"]]
                for i, value in enumerate([1, op["bytes_read"], op["bytes_written"], op["flops"]]):
                    sum_of[i] += round(value)
            for (component, op), values in sorted(sums.items()):
                yield [name, step, component, op, *values]


class NothingToCompare(Exception):
    pass


class Cubin:
    """This has the kernels of an ELF image for a GPU."""

    REGISTERS, FRAME = 0x2F, 0x11  # attributes of .nv.info: pairs of a symbol and a number

    def __init__(self, data):
        self.data = data
        start = struct.unpack_from("<Q", data, 40)[0]
        count, names = struct.unpack_from("<HH", data, 60)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * i) for i in range(count)]
        self.sections = [(self.text(headers[names][4] + h[0]), h) for h in headers]

    def text(self, offset):
        return self.data[offset:self.data.index(b"\0", offset)].decode()

    def body(self, header):
        return self.data[header[4]:header[4] + header[5]]

    def attributes(self):
        """Returns {attribute: {kernel: number}}."""
        by_name = dict(self.sections)
        strings, symbols, info = by_name[".strtab"], self.body(by_name[".symtab"]), self.body(by_name[".nv.info"])
        found, at = collections.defaultdict(dict), 0
        while at < len(info):
            form, attribute, size = struct.unpack_from("<BBH", info, at)
            if form == 4 and attribute in (self.REGISTERS, self.FRAME):
                symbol, number = struct.unpack_from("<II", info, at + 4)
                name = self.text(strings[4] + struct.unpack_from("<I", symbols, 24 * symbol)[0])
                found[attribute][name] = number
            at += 4 + (size if form == 4 else 0)
        return found

    def kernels(self):
        """(name, bytes of code, registers, bytes of stack)"""
        attributes = self.attributes()
        for name, header in self.sections:
            kernel = name.removeprefix(".text.")
            if kernel != name:
                yield (kernel, header[5], attributes[self.REGISTERS].get(kernel, 0),
                       attributes[self.FRAME].get(kernel, 0))


def short_name(mangled):
    """Returns the function's own name: what an anonymous namespace is called depends on where the sources lie."""
    names, rest = [], mangled.removeprefix("_ZN").removeprefix("_Z")
    while found := re.match(r"(\d+)", rest):
        begin = len(found[1])
        names.append(rest[begin:begin + int(found[1])])
        rest = rest[begin + int(found[1]):]
    return "::".join(n for n in names if "_GLOBAL__N_" not in n)


def find_cuobjdump():
    for folder in sys.path:
        for program in pathlib.Path(folder).glob("nvidia/*/bin/cuobjdump"):
            return program
    program = shutil.which("cuobjdump")
    if program is None:
        raise NothingToCompare("there is no cuobjdump: python3 -m pip install --target build/python -r tests/speed/requirements.txt")
    return program


def cubins(library, cuobjdump):
    """Gives the GPU's images in a library, which nvcc may have compressed."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cuobjdump, "-xelf", "all", library.resolve()], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        for image in sorted(pathlib.Path(folder).glob("*.cubin")):
            yield Cubin(image.read_bytes())


# Every plugin that links tenon::gemm has this kernel of it; it is counted once.
SHARED = "tenon::cuda::detail::persistent_gemm_kernel"


def kernel_rows(plugins, nvcc, architectures):
    if nvcc == "":
        raise NothingToCompare("this build has no optimized CUDA kernels")
    cuobjdump = find_cuobjdump()
    version = subprocess.run([nvcc, "--version"], text=True, stdout=subprocess.PIPE, check=True).stdout
    compiler = f"nvcc {re.search(r'V([0-9.]+)', version)[1]} {architectures}"
    yield ["library", "kernel", "variants", "code_bytes", "most_registers", "most_stack_bytes", compiler]
    shared = None
    for library in sorted(pathlib.Path(plugins).glob("*/*.cuda.so")):
        component = pathlib.Path(library.parent.name, library.name.removesuffix(".cuda.so"))
        if not (ROOT / "plugins" / component).is_dir():
            sys.exit(f"{library} was built of plugins/{component}, which is no more: delete the library")
        sums = collections.defaultdict(lambda: [0, 0, 0, 0])
        for cubin in cubins(library, cuobjdump):
            for name, code, registers, stack in cubin.kernels():
                s = sums[short_name(name)]
                s[:] = [s[0] + 1, s[1] + code, max(s[2], registers), max(s[3], stack)]
        shared = sums.pop(SHARED, shared)
        for name, values in sorted(sums.items()):
            yield [".".join(component.parts), name, *values]
    if shared is not None:
        yield ["sdk.gemm", SHARED, *shared]


def main():
    record, quick = "--record" in sys.argv, "--quick" in sys.argv
    if record and quick:
        sys.exit("a quick build has not all of what is recorded")
    what, *source = [a for a in sys.argv[1:] if a not in ("--record", "--quick")]
    try:
        rows = [list(map(str, row)) for row in {"programs": program_rows, "kernels": kernel_rows}[what](*source)]
    except NothingToCompare as why:
        print(why)
        return NOTHING_COMPARED
    if len(rows) == 1:
        sys.exit(f"nothing to count in {source[0]}")
    path = HERE / f"{what}.csv"
    if record:
        recorded.write(path, rows)
        return 0
    before = recorded.read(path)
    if what == "kernels" and before[0] != rows[0]:
        print(f"recorded with {before[0][-1]}, built with {rows[0][-1]}")
        return NOTHING_COMPARED
    if quick:
        assembled = {row[0] for row in rows}
        before = [row for row in before if row[0] in assembled or not row[0].startswith(("attention.", "quantization."))]
    if before == rows:
        return 0
    for sign, ours, theirs in (("-", before, rows), ("+", rows, before)):
        known = set(map(tuple, theirs))
        for row in ours:
            if tuple(row) not in known:
                print(sign, ",".join(row))
    print(f"these counts are not those of {path.relative_to(ROOT)}; a change that means it records them anew:\n"
          f"  python3 tests/speed/counts.py {what} {' '.join(source)} --record")
    return 1


if __name__ == "__main__":
    sys.exit(main())
