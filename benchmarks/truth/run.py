"""Measure how right the answers are: make a sample of pairs with the real msprobe, and score it.

    .venv/bin/python benchmarks/truth/run.py --pairs 60 --seed 1 --out FOLDER [--only-folds 0] [--jobs 2]
    .venv/bin/python benchmarks/truth/run.py --pairs 90 --msit 100 --rotate --looked-at FILE

make.py writes the pairs, in the Python that has msprobe; score.py scores them, also again.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from score import Chosen, add_arguments, names_in, score_folder

HERE = Path(__file__).resolve().parent
PEER = HERE.parents[1] / ".venv-interop" / "bin" / "python"


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    """Read the command line; what is not known here is for make.py."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=HERE.parent / "data" / "truth")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer", type=Path, default=PEER, help="a Python that has msprobe")
    add_arguments(parser)
    return parser.parse_known_args()


def main() -> int:
    """Make the sample, then score it."""
    options, others = parse_arguments()
    chosen = Chosen(options.only_folds, names_in(options.looked_at), rotate=options.rotate)
    asked = ["--pairs", str(options.pairs), "--seed", str(options.seed), "--out", str(options.out)]
    folds = ["--only-folds", *map(str, options.only_folds)] if options.only_folds else []
    subprocess.run([options.peer, HERE / "make.py", *asked, *folds, *others], check=True)
    print(score_folder(options.out, options.jobs, chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
