"""Time the pass over the data of a pair: both engines, plain numpy, the memory, and the real msprobe.

    .venv/bin/python benchmarks/metric_pass.py --peer .venv-interop/bin/python

One thread, tensors in memory, best of several runs. Bytes are those of both tensors in their own dtype.
With `--peer`, an interpreter that has mindstudio-probe, its own functions are timed in the same run.
Prints Markdown tables.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np

from firstdrift.metrics.elementwise.measure import Engine, measure_elements
from firstdrift.metrics.logits import measure_logits

DTYPES = ("float32", "float16", "bfloat16")
ELEMENTS = 1 << 22

PEER = """
import sys, time
import numpy as np, torch
from msprobe.core.compare.npy_compare import CompareResult, ValidateTensor, compare_ops_apply

def read(file, dtype):
    array = np.load(file)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if dtype == "bfloat16" else array

def measure(golden, target):
    if isinstance(golden, torch.Tensor):
        golden, target = golden.float().numpy(), target.float().numpy()
    checked = ValidateTensor().check_tensor(CompareResult(target, golden))
    return compare_ops_apply(checked.n_value, checked.b_value, checked.error_flag, checked.err_msg)

torch.set_num_threads(1)
folder, dtype, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
golden, target = (read(f"{folder}/{side}.npy", dtype) for side in ("golden", "target"))
best = float("inf")
for _ in range(runs):
    start = time.perf_counter()
    measure(golden, target)
    best = min(best, time.perf_counter() - start)
print("seconds", best)
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", type=Path, help="a Python interpreter that has mindstudio-probe")
    parser.add_argument("--runs", type=int, default=15)
    return parser.parse_args()


def make_pair(dtype: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Draw normal numbers and a copy with relative errors of about 1e-3."""
    random = np.random.default_rng(0)
    golden = random.normal(size=shape)
    target = golden * (1 + 1e-3 * random.normal(size=shape))
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return golden.astype(kind), target.astype(kind)


def best_seconds(function: Callable[[], object], runs: int) -> float:
    function()
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def plain_numpy(golden: np.ndarray, target: np.ndarray) -> tuple[float, ...]:
    """Compute a dozen of the metrics the straightforward way: whole tensors in float64."""
    x, y = golden.astype(np.float64), target.astype(np.float64)
    d = y - x
    a = np.abs(d)
    r = a[x != 0] / np.abs(x[x != 0])
    norms = np.linalg.norm(x), np.linalg.norm(y), np.linalg.norm(d)
    cosine = float((x * y).sum()) / (norms[0] * norms[1])
    extremes = x.max(), x.min(), y.max(), y.min(), a.max(), r.max()
    return (
        cosine,
        *norms,
        *extremes,
        x.mean(),
        y.mean(),
        a.mean(),
        r.mean(),
        (r < 1e-3).mean(),
        (r < 5e-3).mean(),
    )


def time_peer(interpreter: Path, dtype: str, pair: tuple[np.ndarray, np.ndarray], runs: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        for side, array in zip(("golden", "target"), pair, strict=True):
            np.save(f"{folder}/{side}.npy", array.view(np.uint16) if dtype == "bfloat16" else array)
        command = [interpreter, "-c", PEER, folder, dtype, str(runs)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(output.split("seconds")[-1])


def time_pass(dtype: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Return GB/s of each implementation."""
    golden, target = make_pair(dtype, (ELEMENTS // 4096, 4096))
    words = golden.view(np.float32).reshape(-1), target.view(np.float32).reshape(-1)
    runs = arguments.runs
    seconds = {
        "both tensors read once (BLAS dot)": best_seconds(lambda: np.dot(*words), runs),
        "firstdrift, numba": best_seconds(lambda: measure_elements(golden, target, "numba"), runs),
        "firstdrift, numba, equal tensors": best_seconds(
            lambda: measure_elements(golden, golden.copy(), "numba"), runs
        ),
        "firstdrift, numpy": best_seconds(lambda: measure_elements(golden, target, "numpy"), runs // 3 + 1),
        "numpy float64, whole tensors": best_seconds(lambda: plain_numpy(golden, target), runs // 3 + 1),
    }
    if arguments.peer is not None:
        seconds["msprobe (its own functions)"] = time_peer(
            arguments.peer, dtype, (golden, target), runs // 3 + 1
        )
    return {name: 2 * golden.nbytes / value / 1e9 for name, value in seconds.items()}


def time_small(runs: int) -> dict[str, float]:
    """Return microseconds for small tensors and for logits."""
    small, logits = make_pair("float32", (16, 16)), make_pair("float32", (16, 151_936))
    many = 1000

    def repeat(engine: Engine) -> Callable[[], None]:
        def run() -> None:
            for _ in range(many):
                measure_elements(*small, engine)

        return run

    return {
        "16 x 16 float32, numpy": best_seconds(repeat("numpy"), runs) / many * 1e6,
        "16 x 16 float32, numba": best_seconds(repeat("numba"), runs) / many * 1e6,
        "logits, one position of 151,936": best_seconds(lambda: measure_logits(*logits), runs) / 16 * 1e6,
    }


def main() -> None:
    arguments = parse_arguments()
    if os.environ.get("OMP_NUM_THREADS") != "1":  # libraries read it when they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})  # noqa: S606
    columns = {dtype: time_pass(dtype, arguments) for dtype in DTYPES}
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__},", end=" ")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {ELEMENTS:,} elements a tensor\n")
    print("| GB/s |", " | ".join(DTYPES), "|\n|---|" + "---|" * len(DTYPES))
    for name in columns[DTYPES[0]]:
        print(f"| {name} |", " | ".join(f"{columns[dtype][name]:.2f}" for dtype in DTYPES), "|")
    print("\n| microseconds | |\n|---|---|")
    for name, value in time_small(arguments.runs).items():
        print(f"| {name} | {value:.0f} |")


if __name__ == "__main__":
    main()
