"""What the scripts that write pairs of dumps have in common."""

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def write_pairs(about: str | None, names: Sequence[str], write_side: Callable[[str, str, str], None]) -> None:
    """Write the pairs that the command line asks for, or all.

    Args:
        about: what the script says of itself; its first line is shown by `--help`.
        names: of all pairs.
        write_side: writes one side of a pair, given the pair's name, the side, and the folder of the dump; it
            runs in a process of its own, for msprobe counts the calls of a process.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    chosen = parser.parse_args()
    for name in chosen.only:
        for side in ("golden", "target"):
            dump = str(chosen.folder.resolve() / name / side)
            writer = multiprocessing.Process(target=write_side, args=(name, side, dump))
            writer.start()
            writer.join()
            if writer.exitcode:
                raise SystemExit(f"{name}/{side} could not be written")


@contextmanager
def recorded(model: object, dump: str, task: str, level: str, passes: str = "all") -> Iterator[None]:
    """Let msprobe record a step of a model.

    Args:
        model: what is run inside the `with`.
        dump: the folder of the dump.
        task: "statistics" or "tensor".
        level: "L0", "L1" or "mix".
        passes: "all", or "forward" alone.
    """
    from msprobe.pytorch import PrecisionDebugger

    said = {"task": task, "dump_path": dump, "rank": [], "step": [], "level": level}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(said | {task: {"scope": [], "list": [], "data_mode": [passes]}}))
        debugger = PrecisionDebugger(config_path=str(config))
        debugger.start(model=model)
        yield
        debugger.stop()
        debugger.step()
