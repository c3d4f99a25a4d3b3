#!/usr/bin/env python3
"""The Perfetto UI opens a trace without losses, and SQL there gives the sums of `tenon trace stats`.

    perfetto_test.py TENON --made-up MADE_UP SCHEDULE     of a run on the CPU, plain and gzipped, all steps and slow ones,
                                                          merged, what made_up_gpu_trace writes, and every slice of the
                                                          requests that known_schedule runs
    perfetto_test.py TENON TRACE...                       of these, which a GPU's machine may have written

Exit code 77 where Chromium or the UI is not installed.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from perfetto_ui import PerfettoUi, missing

SKIPPED = 77

# An operation has a slice on every thread; those of the steps' thread count, or a GPU's, and none within another.
SUMS = """
select coalesce(extract_arg(s.arg_set_id, 'args.component'), s.category) as component, extract_arg(s.arg_set_id, 'args.op') as op,
       count(*) as calls, sum(s.dur) as ns
from slice s join thread_track t on s.track_id = t.id
where s.category in ({categories}) and {where}
  and not exists (select 1 from ancestor_slice(s.id) a where a.category in ({categories}))
group by 1, 2
"""
STEPS_THREAD = """t.utid = (select t.utid from slice s join thread_track t on s.track_id = t.id
  where s.name glob 'ProfilerStep#*' group by t.utid order by count(*) desc limit 1)"""


def tenon_stats(tenon, trace):
    text = subprocess.run([tenon, "trace", "stats", trace, "--format", "json"], check=True, capture_output=True).stdout
    return json.loads(text)


def sums_of_tenon(stats):
    sums = {}
    for group in stats["groups"]:
        calls, ns = sums.get((group["component"], group["op"]), (0, 0))
        sums[group["component"], group["op"]] = (calls + group["calls"], ns + round(group["total_us"] * 1000))
    return sums


def sums_of_perfetto(ui, on_gpu):
    categories = "'kernel', 'gpu_memcpy', 'gpu_memset'" if on_gpu else "'cpu_op'"
    rows = ui.query(SUMS.format(categories=categories, where="true" if on_gpu else STEPS_THREAD))
    return {(component, op or ""): (calls, ns) for component, op, calls, ns in rows}


def check(tenon, trace):
    """Returns what is wrong, as lines."""
    stats = tenon_stats(tenon, trace)
    on_gpu = stats["clock"] == "gpu"
    problems = []
    with PerfettoUi(trace) as ui:
        problems += [f"the importer lost {count} to {name}" for name, count in ui.losses()]
        theirs, ours = sums_of_perfetto(ui, on_gpu), sums_of_tenon(stats)
        for key in sorted(set(ours) | set(theirs), key=str):
            if ours.get(key) != theirs.get(key):
                problems.append(f"{key}: calls and nanoseconds are {ours.get(key)} by tenon, {theirs.get(key)} by Perfetto")
        if not ours:
            problems.append("no operations to compare")
        [[steps]] = ui.query("select count(*) from slice where name glob 'ProfilerStep#*'")
        counted = sum(phase["steps"] for phase in stats["phases"]) + stats["steps_without_ops"]
        if steps != counted:
            problems.append(f"{counted} steps by tenon, {steps} by Perfetto")
        [[tokens]] = ui.query("select count(*) from slice where extract_arg(arg_set_id, 'args.tokens') is not null")
        if tokens == 0:
            problems.append("no step has its tokens")
        flows, = ui.query("select count(*) from flow")[0]
        if on_gpu and flows == 0:
            problems.append("no arrows from launches to kernels")
    print(f"{trace}: {len(ours)} operations, {steps} steps, {flows} arrows: {len(problems)} problems")
    return problems


REQUESTS = """
select s.id, thread.name, s.name, s.dur, p.name, s.arg_set_id
from slice s join thread_track t on s.track_id = t.id join thread using (utid) join process using (upid)
left join slice p on s.parent_id = p.id
where process.name = 'requests' order by s.ts
"""
ARGS = "select arg_set_id, substr(key, 6), display_value from args where key glob 'args.*' order by id"


def check_schedule(program, folder):
    """Compares the slices of requests whose schedule is known, as lines like those of known_schedule.txt."""
    trace = folder / "schedule.json"
    subprocess.run([program, trace], check=True)
    data = pathlib.Path(__file__).parent.parent / "data/trace/known_schedule.txt"
    expected = [line for line in data.read_text().splitlines() if line and not line.startswith("#")]
    problems = []
    with PerfettoUi(trace) as ui:
        problems += [f"schedule: the importer lost {count} to {name}" for name, count in ui.losses()]
        args = {}
        for arg_set, key, value in ui.query(ARGS):
            if key != "waited_us":
                args.setdefault(arg_set, []).append(f"{key}={value}")
        lines = []
        for _, lane, name, ns, parent, arg_set in ui.query(REQUESTS):
            lines.append(f"{lane}|{name}|{' '.join(args.get(arg_set, []))}")
            if ns < 0:
                problems.append(f"schedule: {lines[-1]} does not end")
            if name in ("prompt", "decode") and not (parent or "").startswith("req "):
                problems.append(f"schedule: {lines[-1]} lies in {parent}, not in its request")
    problems += [f"schedule: Perfetto lacks {line}" for line in sorted(set(expected) - set(lines))]
    problems += [f"schedule: only Perfetto has {line}" for line in sorted(set(lines) - set(expected))]
    if len(lines) != len(expected):
        problems.append(f"schedule: Perfetto has {len(lines)} slices of requests, not {len(expected)}")
    print(f"{trace}: {len(lines)} slices of requests: {len(problems)} problems")
    return problems


def record(tenon, made_up, folder):
    generate = [tenon, "-q", "generate", "synthetic:stories15m", "-p", "Once upon a time", "-n", "12", "--ignore-end"]
    traces = []
    for name, settings in (("all.json", []), ("all.json.gz", []), ("slow.json", ["trace.slow_step_ms=1e-6"])):
        traces.append(str(folder / name))
        words = [word for s in settings for word in ("--set", s)]
        subprocess.run([*generate, "--trace", traces[-1], *words], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([tenon, "-q", "trace", "merge", traces[0], traces[1], "-o", folder / "merged.json"], check=True)
    for mode in ("node", "graph"):
        traces.append(str(folder / f"gpu-{mode}.json"))
        subprocess.run([made_up, traces[-1], mode], check=True)
    return traces


def main():
    why = missing()
    if why:
        print(f"skipped: {why}")
        return SKIPPED
    tenon, traces, problems = sys.argv[1], sys.argv[2:], []
    with tempfile.TemporaryDirectory() as folder:
        if traces[0] == "--made-up":
            schedule = traces[2]
            traces = record(tenon, traces[1], pathlib.Path(folder))
            problems += check_schedule(schedule, pathlib.Path(folder))
        problems += [f"{trace}: {p}" for trace in traces for p in check(tenon, trace)]
        merged = pathlib.Path(folder) / "merged.json"
        if merged.exists():
            with PerfettoUi(merged) as ui:
                problems += [f"merged: the importer lost {count} to {name}" for name, count in ui.losses()]
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
