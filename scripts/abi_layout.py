#!/usr/bin/env python3
"""Writes sdk/include/tenon/abi/layout.h, a hash of each kind's interface over every field of every struct, and beside it
tenon_abi.rs, the same interfaces for Rust.

    scripts/abi_layout.py            writes the files anew: run it after each change of a header in sdk/include/tenon/abi
    scripts/abi_layout.py --check    says which definitions differ from the recorded ones; ends with 1 if any does

A plugin carries its kind's hash in its note, and a host whose hash differs refuses it by name.

Each header of the folder is one kind, named like the file, except those in COMMON. A kind's hash covers what its header, the headers
that it includes and the common ones define: of a struct its size and each field's name, type, offset and size (a function's return
type and parameters are its type); of an enumeration each name and value; of a typedef its type; of a macro its text. Comments and
the names of parameters do not count. The C compiler says how large things are and where they lie ($CC, or cc).
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

COMMON = ["device", "params", "plugin", "program", "types"]  # every kind sees these; device is a kind as well
GENERATED = "layout"
QUALIFIERS = {"const", "struct", "enum", "union", "volatile", "unsigned", "signed", "long", "short"}
TOKEN = re.compile(r'[A-Za-z_]\w*|0[xX][0-9a-fA-F]+\w*|\d[\w.]*|"[^"]*"|\.\.\.|<<|>>|\S')
COMMAND = "python3 scripts/abi_layout.py"


class Unreadable(Exception):
    pass


class Item:
    """One definition: `lines` is what counts of its text, `probes` the C expressions whose values count too."""

    def __init__(self, name, lines, probes=()):
        self.name, self.lines, self.probes, self.values = name, list(lines), list(probes), []

    def hash(self, digits):
        text = "\n".join([self.name, *self.lines, *map(str, self.values)])
        return hashlib.sha256(text.encode()).hexdigest()[:digits]


def is_name(token):
    return re.fullmatch(r"[A-Za-z_]\w*", token) is not None


def split(tokens, separator):
    """The tokens between separators that stand outside of all brackets."""
    parts, depth = [[]], 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        if token == separator and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def parameter_type(tokens):
    """`const tenon_attn * a` without the `a`."""
    named = len(tokens) > 1 and is_name(tokens[-1]) and tokens[-1] not in QUALIFIERS and tokens[-2] not in QUALIFIERS
    return " ".join(tokens[:-1] if named else tokens)


def fields_of(tokens, where):
    """(name, type) of each field of `tokens`, which is one declaration of a struct without its semicolon."""
    if "{" in tokens or ":" in tokens:
        raise Unreadable(f"{where}: a struct in a struct, or a bit field: {' '.join(tokens)}")
    if "(" in tokens:
        at = tokens.index("(")
        if tokens[at + 1] != "*" or tokens[at + 3] != ")" or tokens[at + 4] != "(" or tokens[-1] != ")":
            raise Unreadable(f"{where}: no plain function pointer: {' '.join(tokens)}")
        parameters = ", ".join(parameter_type(p) for p in split(tokens[at + 5:-1], ","))
        return [(tokens[at + 2], f"{' '.join(tokens[:at])} ({parameters})")]
    base = 0
    while tokens[base] in QUALIFIERS:
        base += 1
    base += 2 if tokens[base + 1] == "const" else 1
    fields = []
    for declarator in split(tokens[base:], ","):
        name = next(i for i, token in enumerate(declarator) if is_name(token) and token != "const")
        kind = tokens[:base] + declarator[:name] + declarator[name + 1:]
        fields.append((declarator[name], " ".join(kind)))
    return fields


def struct(name, body):
    lines, probes = [], [f"sizeof({name})"]
    for declaration in split(body, ";"):
        for field, kind in fields_of(declaration, name) if declaration else []:
            lines.append(f"{field}: {kind}")
            probes += [f"offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
    return Item(name, lines, probes)


def enumeration(body):
    names = [part[0] for part in split(body, ",") if part]
    return Item(f"enum {names[0]}", names, [f"(long long){name}" for name in names])


def definitions(tokens):
    """The items of a header, whose text without comments and directives is `tokens`."""
    items, i = [], 0
    while i < len(tokens):
        end, depth = i, 0
        while depth > 0 or tokens[end] != ";":
            depth += (tokens[end] in "([{") - (tokens[end] in ")]}")
            if depth == 0 and tokens[end] == "}" and tokens[i] == "static":  # the end of an inline function
                break
            end += 1
        one = tokens[i:end]
        i = end + 1
        if not one or one[0] == "static":
            continue
        if one[0] == "enum" and one[1] == "{":
            items.append(enumeration(one[2:-1]))
        elif one[:2] == ["typedef", "struct"] and "{" in one:
            items.append(struct(one[-1], one[one.index("{") + 1:len(one) - 2]))
        elif one[0] == "typedef" and "{" not in one:
            items.append(Item(" ".join(one), []))
        else:
            raise Unreadable(f"cannot read: {' '.join(one[:12])} ...")
    return items


def macros(text):
    """Macros without parameters that have a value, but for the defaults of TENON_PLUGIN."""
    joined = re.sub(r"\\\n", " ", re.sub(r"/\*.*?\*/", " ", text, flags=re.S))
    found = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(TENON_\w+)[ \t]+(\S.*?)[ \t]*$", joined, flags=re.M)
    return [Item(f"macro {name}", [" ".join(value.split())]) for name, value in found
            if not name.startswith("TENON_PLUGIN_")]


class Headers:
    def __init__(self, folder, compiler):
        self.folder, self.compiler = folder, compiler
        self.names = sorted(p.stem for p in folder.glob("*.h") if p.stem != GENERATED)
        self.text = {name: (folder / f"{name}.h").read_text() for name in self.names}
        source = "".join(f'#include "tenon/abi/{name}.h"\n' for name in self.names)
        self.items = {name: definitions(tokens) + macros(self.text[name])
                      for name, tokens in self.preprocessed(source).items()}
        self.measure(source)

    def run_compiler(self, *args):
        include = self.folder.parent.parent
        # The file that is to be written may be half merged: its guard keeps it out.
        command = [self.compiler, "-std=c11", "-DTENON_ABI_LAYOUT_H", f"-I{include}", *args]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise Unreadable(result.stderr)
        return result.stdout

    def preprocessed(self, source):
        """Of each header its own tokens, without those of what it includes."""
        tokens = {name: [] for name in self.names}
        with tempfile.TemporaryDirectory() as work:
            path = Path(work) / "all.c"
            path.write_text(source)
            current = None
            for line in self.run_compiler("-E", str(path)).splitlines():
                marker = re.match(r'# \d+ "(.*?)"', line)
                if marker:
                    file = Path(marker[1])
                    current = tokens.get(file.stem) if file.parent == self.folder else None
                elif current is not None:
                    current += TOKEN.findall(line)
        return {name: [t for t in found if t != "_Pragma"] for name, found in tokens.items()}

    def measure(self, source):
        probed = [item for items in self.items.values() for item in items if item.probes]
        prints = "\n".join(f'  printf("%lld\\n", (long long)({probe}));' for item in probed for probe in item.probes)
        with tempfile.TemporaryDirectory() as work:
            path = Path(work) / "probe.c"
            path.write_text(f"#include <stdio.h>\n{source}int main(void) {{\n{prints}\n  return 0;\n}}\n")
            self.run_compiler(str(path), "-o", str(path.with_suffix("")))
            values = iter(subprocess.run([path.with_suffix("")], capture_output=True, text=True, check=True).stdout.split())
        for item in probed:
            item.values = [next(values) for _ in item.probes]

    def included_by(self, name, seen):
        if name in self.names and name not in seen:
            seen.add(name)
            for other in re.findall(r'#include "tenon/abi/(\w+)\.h"', self.text[name]):
                self.included_by(other, seen)
        return seen

    def kinds(self):
        return [name for name in self.names if name not in COMMON or name == "device"]

    def hash_of(self, kind):
        headers = set(self.names) & set(COMMON)
        headers |= self.included_by(kind, set())
        lines = sorted(f"{item.name} {item.hash(64)}" for name in headers for item in self.items[name])
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


RUST_TYPES = {"void": "c_void", "char": "c_char", "int": "c_int", "float": "f32", "double": "f64", "size_t": "usize"} | {
    f"{sign}int{bits}_t": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
RUST_KEYWORDS = {"fn", "in", "impl", "loop", "match", "mod", "move", "pub", "ref", "type", "use", "where"}


def rust_type(text):
    """The Rust type of a C type as fields_of() and parameter_type() write it."""
    if "(" in text:
        result, parameters = text.split(" (", 1)
        listed = ", ".join(rust_type(p) for p in parameters[:-1].split(", ") if p not in ("", "void"))
        returned = "" if result == "void" else f" -> {rust_type(result)}"
        return f'Option<unsafe extern "C" fn({listed}){returned}>'
    tokens = text.split()
    base = next(i for i, token in enumerate(tokens) if token not in QUALIFIERS)
    said, const = RUST_TYPES.get(tokens[base], tokens[base]), "const" in tokens[:base]
    for i, token in enumerate(tokens[base + 1:], base + 1):
        if token == "const":
            const = True
        elif token == "*":
            said, const = f"*{'const' if const else 'mut'} {said}", False
    for length in reversed(re.findall(r"\[ (\w+) \]", text)):
        said = f"[{said}; {length if length.isdigit() else length + ' as usize'}]"
    return said


def rust_name(name):
    return "self_" if name == "self" else f"r#{name}" if name in RUST_KEYWORDS else name


def rust_zero(kind, typedefs):
    """What is 0 of a Rust type that rust_type() wrote."""
    if kind.startswith("["):
        element, length = kind[1:-1].rsplit("; ", 1)
        return f"[{rust_zero(element, typedefs)}; {length}]"
    if kind.startswith("Option<"):
        return "None"
    if kind.startswith("*"):
        return "core::ptr::null_mut()" if kind.startswith("*mut") else "core::ptr::null()"
    if kind in ("f32", "f64"):
        return "0.0"
    return "0" if kind in RUST_TYPES.values() or kind in typedefs else f"{kind}::NEW"


def rust_item(item, typedefs):
    if item.name.startswith("typedef "):
        kind, name = item.name.removeprefix("typedef ").rsplit(" ", 1)
        return [f"pub type {name} = {rust_type(kind)};"]
    if item.name.startswith("macro "):
        value = item.lines[0].replace("UINT32_MAX", "0xffffffff")
        number = re.fullmatch(r"\d+|0x[0-9a-f]+", value)
        return [f"pub const {item.name.removeprefix('macro ')}: u32 = {value};"] if number else []
    if item.name.startswith("enum "):
        kind = "i32" if any(int(value) < 0 for value in item.values) else "u32"
        return [f"pub const {name}: {kind} = {value};" for name, value in zip(item.lines, item.values)]
    fields = [(name, rust_type(kind)) for name, kind in (line.split(": ", 1) for line in item.lines)]
    zeros = ", ".join(f"{rust_name(name)}: " + (f"head({item.values[0]})" if (name, kind) == ("h", "tenon_head")
                                               else rust_zero(kind, typedefs)) for name, kind in fields)
    return ["#[repr(C)]", "#[derive(Clone, Copy)]", f"pub struct {item.name} {{",
            *(f"    pub {rust_name(name)}: {kind}," for name, kind in fields),
            "}", f"unsafe impl Sync for {item.name} {{}}",
            f"impl {item.name} {{", f"    pub const NEW: {item.name} = {item.name} {{ {zeros} }};", "}",
            f"const _: () = assert!(core::mem::size_of::<{item.name}>() == {item.values[0]});"]


def tenon_abi_rs(headers):
    lines = [
        "// The binary boundary for Rust, as the C headers beside this file have it: what a field or function means stands there.",
        f"// Written by scripts/abi_layout.py; after a change of a header in this folder: {COMMAND}",
        "//   mod abi { include!(concat!(env!(\"TENON_INCLUDE\"), \"/tenon/abi/tenon_abi.rs\")); }",
        "#[allow(unused_imports)]",
        "use std::os::raw::{c_char, c_int, c_void};",
        "",
        "// Every struct has a constant NEW, its head filled in and all else 0: write tenon_op { name, ..tenon_op::NEW }, and a\n// field that is added changes nothing.",
        "",
        "// The head of a struct that grows: see types.h.",
        "pub const fn head(size: usize) -> tenon_head {",
        "    tenon_head { size: size as u32, major: 1, minor: 0 }",
        "}",
        "",
        *(f'pub const TENON_LAYOUT_{kind.upper()}: &str = "{headers.hash_of(kind)}";' for kind in headers.kinds())]
    items = [item for name in headers.names for item in headers.items[name]]
    typedefs = {item.name.rsplit(" ", 1)[1] for item in items if item.name.startswith("typedef ")}
    for name in headers.names:
        lines += ["", f"// {name}.h", *(line for item in headers.items[name] for line in rust_item(item, typedefs))]
    return "\n".join(lines) + "\n"


def layout_h(headers):
    kinds = headers.kinds()
    macro = {kind: f"TENON_LAYOUT_{kind.upper()}" for kind in kinds}
    width = max(map(len, macro.values()))
    return "\n".join([
        "/* The layout of each kind's interface, for a plugin's note: a hash over every field of every struct.  C11 and C++20.",
        f" * Written by scripts/abi_layout.py; after a change of a header in this folder: {COMMAND} */",
        "#ifndef TENON_ABI_LAYOUT_H",
        "#define TENON_ABI_LAYOUT_H",
        "",
        *(f'#define {macro[kind]:{width}} "{headers.hash_of(kind)}"' for kind in kinds),
        "",
        "/* TENON_LAYOUTS(X) makes an X(\"kind\", hash) of each. */",
        "#define TENON_LAYOUTS(X) \\",
        *(f'  X("{kind}", {macro[kind]}) \\' for kind in kinds[:-1]),
        f'  X("{kinds[-1]}", {macro[kinds[-1]]})',
        "",
        "/* What the hashes were made of, so that a check can name what has changed.",
        *(f" * {name}: {item.name} {item.hash(12)}" for name in headers.names for item in headers.items[name]),
        " */",
        "#endif",
        ""])


def recorded(text):
    return dict(re.findall(r"^ \* (\w+: .*) ([0-9a-f]{12})$", text, flags=re.M))


def difference(old, new):
    """Sentences about what `new` says otherwise than `old`, both texts of layout.h."""
    before, after = recorded(old), recorded(new)
    said = [f"{name} has changed" for name in after if name in before and before[name] != after[name]]
    said += [f"{name} is new" for name in after if name not in before]
    said += [f"{name} is gone" for name in before if name not in after]
    return said or ["it was edited by hand"]


def main():
    root = Path(__file__).resolve().parent.parent / "sdk/include"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if the file is not what it should be")
    parser.add_argument("--include", type=Path, default=root, help="the folder that has tenon/abi")
    args = parser.parse_args()
    folder = args.include.resolve() / "tenon/abi"
    try:
        headers = Headers(folder, os.environ.get("CC", "cc"))
        written = {folder / f"{GENERATED}.h": layout_h(headers), folder / "tenon_abi.rs": tenon_abi_rs(headers)}
    except Unreadable as problem:
        sys.exit(f"abi_layout.py: {problem}")
    for file, text in written.items():
        old = file.read_text() if file.exists() else ""
        if text == old:
            continue
        if args.check:
            said = "\n  ".join(difference(old, text))
            sys.exit(f"{file} does not say what the headers say:\n  {said}\nEvery plugin built before will be refused. "
                     f"If that is meant, run: {COMMAND}")
        file.write_text(text)


if __name__ == "__main__":
    main()
