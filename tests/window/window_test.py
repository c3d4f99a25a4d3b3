#!/usr/bin/env python3
"""window_test.py TENON_VIEW [PICTURES]: drives the viewer with keys and mouse in a window that a virtual X server shows.

What OpenGL puts on the screen is compared with what the viewer's own rasteriser makes of the same frame (key P). With PICTURES,
a folder, some screens are kept there.
"""
import importlib.util
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

WIDTH, HEIGHT = 1280, 720


def trace(path, seed=5):
    """Writes 24 decode steps of 4 layers on two threads, with everything that the views look for."""
    rng = random.Random(seed)
    words = "The sky is blue because air scatters short waves of light more than long ones , so blue reaches us from everywhere .".split()
    events = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "engine"}}]
    for thread in (7, 8):
        events.append({"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": f"worker {thread - 7}"}})
    at = 0.0
    for step, word in enumerate(words):
        begin = at
        for layer in range(4):
            for name, op, component, us, size in (("attention.qkv", "gemv", "quantization.gguf", 30, 400_000),
                                                  ("attention", "attention", "attention.flash", 12, 20_000),
                                                  ("mlp.down", "gemv", "quantization.gguf", 40, 600_000)):
                for thread in (7, 8):
                    events.append({"ph": "X", "pid": 1, "tid": thread, "ts": round(at + 1, 3), "dur": round(us * rng.uniform(.9, 1), 3),
                                   "cat": "cpu_op", "name": f"layers.{layer}.{name}",
                                   "args": {"component": component, "op": op, "layer": layer, "bytes_read": size, "bytes_written": 64}})
                at += us + 2
        slow = 150 if step == 9 else 0
        events.append({"ph": "X", "pid": 1, "tid": 7, "ts": round(at, 3), "dur": 20 + slow, "cat": "cpu_op", "name": "sampler",
                       "args": {"component": "sampler.top_p", "op": "keep_probable", "bytes_read": 1000, "bytes_written": 0}})
        at += 25 + slow
        events.append({"ph": "X", "pid": 1, "tid": 7, "ts": round(begin, 3), "dur": round(at - begin, 3), "cat": "user_annotation",
                       "name": f"ProfilerStep#{step}",
                       "args": {"phase": "decode", "step": step, "n_ctx_tok": 0, "n_gen_tok": 1, "drafted": 0, "accepted": 0,
                                "tokens": word if step == 0 or word in ",." else " " + word}})
        events.append({"ph": "C", "pid": 3, "ts": round(at, 3), "name": "kv_used_bytes", "args": {"value": 1000 * step}})
        at += 5
    # Three requests after one another in one slot: the others wait.
    for number in range(3):
        begin, end = round(at * number / 3, 3), round(at * (number + 1) / 3, 3)
        for category, tid, start, stop in (("request_queue", 1 + number, 0, begin), ("request", 101, begin, end)):
            events.append({"ph": "X", "pid": 2, "tid": tid, "ts": start, "dur": round(stop - start, 3), "cat": category, "name": f"req {number}",
                           "args": {"request": number, "prompt": 8, "waited_us": begin, "cached": 4, "generated": 8, "end": "length"}})
    path.write_text(json.dumps({"traceEvents": events, "metadata": {"read_bandwidth_gbps": 16, "pipeline_toml": "[model]\n"}}))


def screen(data):
    """Returns the pixels of Xvfb's frame buffer file (XWD) as rows of RGB bytes."""
    fields = struct.unpack(">25I", data[:100])
    header, width, height, line, colours = fields[0], fields[4], fields[5], fields[12], fields[19]
    start = header + colours * 12
    rows = []
    for y in range(height):
        row = data[start + y * line:start + y * line + width * 4]
        rgb = bytearray(width * 3)
        rgb[0::3], rgb[1::3], rgb[2::3] = row[2::4], row[1::4], row[0::4]
        rows.append(bytes(rgb))
    return rows


def write_png(path, rows):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    head = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b""))


def read_png(path):
    """Reads RGBA pictures of 8 bits, as rows of RGB bytes."""
    data, at, body = path.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height = struct.unpack(">II", data[at + 8:at + 16])
        if kind == b"IDAT":
            body += data[at + 8:at + 8 + size]
        at += size + 12
    raw, rows, above = zlib.decompress(body), [], bytearray(width * 4)
    for y in range(height):
        kind, line = raw[y * (width * 4 + 1)], bytearray(raw[y * (width * 4 + 1) + 1:(y + 1) * (width * 4 + 1)])
        for i in range(len(line)):
            left, up, corner = line[i - 4] if i > 3 else 0, above[i], above[i - 4] if i > 3 else 0
            if kind == 4:
                guess = left + up - corner
                near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
            else:
                near = (0, left, up, (left + up) // 2)[kind]
            line[i] = (line[i] + near) & 255
        above = line
        rgb = bytearray(width * 3)
        rgb[0::3], rgb[1::3], rgb[2::3] = line[0::4], line[1::4], line[2::4]
        rows.append(bytes(rgb))
    return rows


class Display:
    def __init__(self, folder):
        self.buffer = folder / "Xvfb_screen0"
        read, write = os.pipe()
        self.server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", f"{WIDTH}x{HEIGHT}x24", "-fbdir", str(folder),
                                        "-nolisten", "tcp", "-noreset"], pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as number:
            self.name = ":" + number.readline().strip()

    def close(self):
        self.server.terminate()
        self.server.wait()


class Viewer:
    def __init__(self, program, display, folder, arguments):
        self.environment = dict(os.environ, DISPLAY=display.name, XDG_STATE_HOME=str(folder / "state"), LIBGL_ALWAYS_SOFTWARE="1")
        self.display, self.folder = display, folder
        self.process = subprocess.Popen([program, "--size", f"{WIDTH}x{HEIGHT}", *arguments], cwd=folder, env=self.environment)
        for _ in range(200):
            found = subprocess.run(["xdotool", "search", "--name", "^tenon-view$"], env=self.environment, capture_output=True, text=True)
            if found.stdout.split():
                break
            assert self.process.poll() is None, "the viewer ended"
            time.sleep(0.1)
        self.window = found.stdout.split()[0]
        for attempt in range(50):  # until it is mapped
            try:
                self.tool("windowfocus", "--sync", self.window)
                break
            except subprocess.CalledProcessError:
                assert attempt < 49, "the window takes no focus"
                time.sleep(0.1)
        self.settle()

    def tool(self, *arguments):
        subprocess.run(["xdotool", *map(str, arguments)], env=self.environment, check=True, capture_output=True)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def settle(self, unlike=None, fault=None):
        """Waits until the screen has been the same for a while and differs from the rows `unlike`, and returns it."""
        last, same = None, 0
        for _ in range(200):
            time.sleep(0.15)
            now = self.display.buffer.read_bytes()
            same = same + 1 if now == last and now[-WIDTH * 4:].strip(b"\0") else 0
            last = now
            if same >= 2 and screen(now) != unlike:
                return screen(now)
        raise AssertionError(fault if same else "the screen does not come to rest")

    def press(self, *keys, unlike=None, fault=None):
        for key in keys:
            self.tool("keydown", key)
            time.sleep(0.2)
            self.tool("keyup", key)
        return self.settle(unlike, fault)

    def close(self):
        self.tool("key", "ctrl+q")
        assert self.process.wait(timeout=60) == 0, "Ctrl+Q does not end it well"


def differing(a, b, least):
    """The share of channels that differ by more than `least`."""
    assert len(a) == len(b) and len(a[0]) == len(b[0])
    return sum(sum(abs(x - y) > least for x, y in zip(p, q)) for p, q in zip(a, b) if p != q) / (len(a) * len(a[0]))


def until(condition, fault):
    """Waits until `condition()` holds: the viewer of a busy machine may answer its keys late."""
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(fault)


def recent(folder):
    """The names of the files that were opened, the newest first."""
    listed = folder / "state/tenon/recent-traces"
    return [pathlib.Path(line).name for line in listed.read_text().splitlines()] if listed.exists() else []


def drops(program, display, folder, shots):
    """A file dropped on the start page is opened, a second one can be compared with it, and what is no trace is said to be none."""
    from drop import Source

    second = folder / "söme other run.json"
    trace(second, seed=6)
    viewer = Viewer(program, display, folder, [])
    try:
        shots["empty"] = viewer.settle()

        def drop(*paths):
            Source(display.name, int(viewer.window), paths).drop(600, 400)

        drop(folder / "sky.json")
        shots["dropped"] = viewer.settle(shots["empty"], "a dropped file changes nothing")
        until(lambda: recent(folder)[:1] == ["sky.json"], "a dropped file is not opened")
        drop(second)
        until(lambda: recent(folder)[:2] == [second.name, "sky.json"], "a name with a blank and an umlaut is not opened")
        shots["compare"] = viewer.press("c", unlike=viewer.settle(), fault="C does not compare")
        before = viewer.press("period", unlike=shots["compare"], fault="the step that two traces are aligned at does not change")
        broken = folder / "dropped.json"
        broken.write_text("no trace")
        drop(broken)
        viewer.settle(before, "nothing says that a dropped file is no trace")
        assert broken.name not in recent(folder)
        assert viewer.process.poll() is None, "a dropped file that is no trace ends the viewer"
        viewer.close()
        viewer = Viewer(program, display, folder, [])
        drop(folder / "sky.json", second)
        until(lambda: recent(folder)[:2] == [second.name, "sky.json"], "of two files dropped at once one is missing")
        viewer.close()
    finally:
        viewer.stop()


def run(program, keep):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trace(folder / "sky.json")
        display = Display(folder)
        viewer = None
        try:
            viewer = Viewer(program, display, folder, ["sky.json"])
            shots = {"timeline": viewer.settle()}
            assert len({pixel for row in shots["timeline"][::7] for pixel in zip(row[0::3], row[1::3], row[2::3])}) > 12, "nothing is drawn"

            shots["zoomed"] = viewer.press("w", "w", "d", unlike=shots["timeline"], fault="W and D do nothing")
            viewer.press("f", unlike=shots["zoomed"], fault="F does nothing")

            viewer.tool("mousemove", 640, 400)
            shots["before_wheel"] = viewer.settle()
            viewer.tool("click", 4)
            viewer.settle(shots["before_wheel"], "the wheel does nothing")
            viewer.press("f")

            for action in (("mousemove", 300, 130), ("mousedown", 1), ("mousemove", 400, 140), ("mousemove", 800, 150), ("mouseup", 1),
                           ("mousemove", 640, 700)):
                viewer.tool(*action)
                time.sleep(0.3)
            shots["area"] = viewer.settle()
            viewer.press("Escape")

            viewer.press("slash")
            viewer.tool("type", "keep_probable")
            viewer.tool("key", "Return")
            shots["search"] = viewer.settle(shots["area"], "the search shows nothing")
            shown = viewer.press("Escape", unlike=shots["search"], fault="Escape does not end the search")

            for number, view in ((2, "steps"), (3, "tokens"), (4, "heat_map"), (5, "waterfall"), (6, "operations"), (7, "flame"), (8, "plots"),
                                 (9, "pipeline"), (0, "start")):
                shown = shots[view] = viewer.press(str(number), unlike=shown, fault=f"{number} does not show {view}")
            shots["requests"] = viewer.press("r", unlike=shown, fault="R does not show the requests")
            views = ["requests", "timeline", "area", "search", "steps", "tokens", "heat_map", "waterfall", "operations", "flame", "plots", "pipeline", "start"]
            assert len({b"".join(shots[v]) for v in views}) == len(views), "two views look the same"

            dark = viewer.press("3", unlike=shots["requests"], fault="3 does not show tokens")
            light = viewer.press("t", unlike=dark, fault="T changes nothing")
            assert sum(light[HEIGHT - 1][:300]) > 3 * sum(shots["tokens"][HEIGHT - 1][:300]), "T does not make it light"
            dark = viewer.press("t", unlike=light, fault="T does not make it dark again")

            before = viewer.press("2", unlike=dark, fault="2 does not show steps")
            viewer.press("p")
            picture = folder / "tenon-view-steps.png"
            until(lambda: picture.exists() and picture.read_bytes().endswith(b"IEND\xae\x42\x60\x82"), "P saves no picture")
            share = differing(read_png(picture), before, 24)
            assert share < 0.01, f"{100 * share:.2f} % of what OpenGL shows differs from the saved picture"
            viewer.close()

            assert "sky.json" in (folder / "state/tenon/recent-traces").read_text(), "the file is not among the recent ones"
            broken = folder / "broken.json"
            broken.write_text("no trace")
            viewer = Viewer(program, display, folder, ["broken.json"])
            assert viewer.process.poll() is None, "a broken file ends the viewer"
            viewer.settle()
            viewer.close()
            viewer = None
            (folder / "state/tenon/recent-traces").unlink()
            drops(program, display, folder, shots)
            if keep:
                for view, rows in shots.items():
                    write_png(pathlib.Path(keep) / f"view-{view.replace('_', '-')}.png", rows)
        finally:
            if viewer:
                viewer.stop()
            display.close()


def main():
    for tool in ("Xvfb", "xdotool"):
        if not shutil.which(tool):
            print(f"skipped: {tool} is not installed")
            return 77
    if not importlib.util.find_spec("Xlib"):
        print("skipped: python3-xlib is not installed")
        return 77
    run(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2] if len(sys.argv) > 2 else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
