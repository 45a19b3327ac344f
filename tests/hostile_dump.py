"""Dumps whose every name tries to run as a script, to end what it stands in, or to look like another name."""

import json
from pathlib import Path
from typing import Any

HOSTILE = [
    "<img src=x onerror=window.PWN=1>",
    "<script>window.PWN=1</script>",
    "</script><script>window.PWN=1</script>",
    "'\"><svg onload=window.PWN=1>",
    "';window.PWN=1;//",
    '"-window.PWN=1-"',
    "javascript:window.PWN=1",
    "{{ 7 * 7 }}${7*7}#{7*7}",
    "&lt;b&gt;&amp;",
    "a\u202egnp.exe",
    "\u2066rtl\u2069 \u05d0\u05d1\u05d2",
    "line\nbreak\ttab\r",
    "nul\u0000byte",
    "lone \ud83d surrogate",
    "x" * 3000,
    "--><!--",
    "]]>",
    "`${window.PWN=1}`",
    "%3Cscript%3E",
    "=HYPERLINK(1)",
    "../../etc/passwd",
    "\u00e9\u4e2d\u6587\U0001f600",
    "<iframe srcdoc='<script>parent.PWN=1</script>'>",
    "<a href=javascript:window.PWN=1>x</a>",
    "<body onload=window.PWN=1>",
    "<math><mtext></style><img src onerror=window.PWN=1>",
    "<svg><animate onbegin=window.PWN=1 attributeName=x dur=1s>",
    "<details open ontoggle=window.PWN=1>",
    "<input autofocus onfocus=window.PWN=1>",
    "</title><script>window.PWN=1</script>",
    "</textarea><script>window.PWN=1</script>",
    "</style><script>window.PWN=1</script>",
    "{% raw %}{{ self.__init__ }}{% endraw %}",
    "\\u003cscript\\u003ewindow.PWN=1",
    "data:text/html,<script>window.PWN=1</script>",
    "x' onmouseover='window.PWN=1",
    'x" style="animation:x" onanimationstart="window.PWN=1',
    "__proto__",
    "constructor.prototype.PWN",
    "<object data=javascript:window.PWN=1>",
]


def write_hostile_dumps(root: Path) -> None:
    """Write a golden and a target dump of msprobe, with hostile names for modules, operators and keys."""
    for side, scale in (("golden", 1.0), ("target", 2.0)):
        folder = root / "hostile" / side / "step0" / "rank"
        folder.mkdir(parents=True)
        entries = dict(_entries(scale, side))
        names = list(entries)
        content = {
            "task": "statistics",
            "level": "mix",
            "framework": "pytorch",
            "dump_data_dir": None,
            "data": entries,
        }
        (folder / "dump.json").write_text(json.dumps(content))
        (folder / "construct.json").write_text(json.dumps(dict.fromkeys(names)))
        stack = {
            str(place): [[name], [f"File {name}, line 1, in {name}"]] for place, name in enumerate(names)
        }
        (folder / "stack.json").write_text(json.dumps(stack))
    # As names of folders, without what file systems refuse.
    for place, name in enumerate(HOSTILE):
        printable = name.replace("/", "_").replace("\0", "0").encode("utf-8", "replace").decode()[:60]
        (root / "hostile" / f"{place} {printable}").mkdir(exist_ok=True)


def write_hostile_rollout(file: Path) -> None:
    """Write log-probabilities of sequences whose ids are hostile."""
    lines = [
        {"uid": name, "sample_index": at, "responses": [1, 2], "rollout_log_probs": [-1.0, -2.0 - at]}
        for at, name in enumerate(HOSTILE)
    ]
    file.write_text("\n".join(map(json.dumps, lines)))


def _entries(scale: float, side: str) -> list[tuple[str, dict[str, Any]]]:
    entries = []
    for place, name in enumerate(HOSTILE):
        shown = f"{side} {name}" if place % 5 == 0 else name  # every fifth has no partner
        entries.append((f"Module.{shown}.Linear.forward.0", _node(scale, name)))
        entries.append((f"Functional.{shown}.0.forward", _node(scale, name)))
    return entries


def _node(scale: float, name: str) -> dict[str, Any]:
    return {
        "input_args": [_tensor(1.0), {"type": "str", "value": name}],
        "input_kwargs": {name: _tensor(1.0)},
        "output": [_tensor(scale)],
    }


def _tensor(scale: float) -> dict[str, Any]:
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2, 3],
        "Max": 1.5 * scale,
        "Min": -0.5 * scale,
        "Mean": 0.25 * scale,
        "Norm": 2.0 * scale,
        "requires_grad": False,
    }
