"""A pair of dumps full of names that try to harm whoever looks at them."""

from pathlib import Path

from library.dumps.msprobe_samples import tensor, write_dump

NAMES = (
    "Module.\x1b[31mred\x1b]0;title\x07.Linear.forward.0",
    "Module.new\nfirst bad node: step 9, innocent.Linear.forward.0",
    "Module.\u202egnp.exe.Linear.forward.0",
    "Module.<script>alert(1)</script>.Linear.forward.0",
    "Module.\x9b2J\x7f\x00.Linear.forward.0",
    '=HYPERLINK("http://example.org","click").forward.0',
    "+cmd|' /C calc'!A0.forward.0",
    "@SUM(A1:A9).forward.0",
    "Module.\u5c42.\u00e9\U0001f600.Linear.forward.0",
)
KEY = "-1+1\x1b[2J"


def write_hostile_dumps(folder: Path) -> tuple[Path, Path]:
    """Write a golden and a target dump; each output of the target is three times the golden one."""
    for side, factor in (("golden", 1.0), ("target", 3.0)):
        data = {
            name: {
                "input_args": [tensor()],
                "input_kwargs": {KEY: tensor()},
                "output": [tensor(Max=1.5 * factor, Min=-factor, Mean=0.25 * factor, Norm=2.0 * factor)],
                "parameters": {},
            }
            for name in NAMES
        }
        write_dump(folder / side / "step0" / "rank0", data, level="mix\x1b[2J")
    return folder / "golden", folder / "target"
