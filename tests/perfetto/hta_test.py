#!/usr/bin/env python3
"""PyPI's HolisticTraceAnalysis reads a trace of a GPU: how its time divides into computing, copying and waiting.

    hta_test.py TRACE           written with a CUDA device, for example by
                                tenon generate MODEL --set device.use=cuda --prompt "Once" --max-new-tokens 64 --trace gpu.json.gz
    hta_test.py --made-up EXE   of both kinds that made_up_gpu_trace writes

Exit code 77 where it is not installed (pip install HolisticTraceAnalysis), 1 if a part of the time is missing.
"""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile


def problems_of(trace):
    from hta.trace_analysis import TraceAnalysis
    analysis = TraceAnalysis(trace_files={0: str(trace)}, trace_dir="")
    times = analysis.get_temporal_breakdown(visualize=False)
    print(times.to_string(index=False))
    kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=8)[1]
    print(kernels.to_string(index=False))
    row = times.iloc[0]
    parts = [row[f"{part}_time(us)"] for part in ("idle", "compute", "non_compute")]
    problems = []
    if row["compute_time(us)"] <= 0:
        problems.append("no time of kernels")
    if abs(sum(parts) - row["kernel_time(us)"]) > 0.01 * row["kernel_time(us)"]:
        problems.append(f"the parts {parts} are not the whole, {row['kernel_time(us)']}")
    if kernels.empty:
        problems.append("no kernels by name")
    return problems


def main():
    if not importlib.util.find_spec("hta"):
        print("skipped: Python has no hta (pip install HolisticTraceAnalysis)")
        return 77
    if sys.argv[1] != "--made-up":
        problems = problems_of(sys.argv[1])
    else:
        problems = []
        with tempfile.TemporaryDirectory() as folder:
            for mode in ("node", "graph"):
                trace = pathlib.Path(folder, f"{mode}.json.gz")
                subprocess.run([sys.argv[2], trace, mode], check=True)
                problems += [f"{mode}: {problem}" for problem in problems_of(trace)]
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
