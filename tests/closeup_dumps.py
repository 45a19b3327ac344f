"""Two folders of tensors of which some were changed on purpose: what the node page has to show."""

from pathlib import Path

import numpy as np

DEPTH = 16


def write_dumps(root: Path) -> tuple[Path, Path]:
    """Write a golden and a target dump of a few small tensors; return both."""
    random = np.random.default_rng(0)
    golden = {
        name: random.normal(size=shape).astype("float32")
        for name, shape in {
            "model.embed": (2, 6, 64),
            "model.layers.0.attn": (1, 6, 64),
            "model.layers.0.mlp": (2, 6, 64),
            "model.layers.0.mlp.act": (2, 6, 64),
            "model.layers.0.wide": (2000, 600),
            "model.layers.1.mlp": (4, 8),
            "model.norm": (2, 6, 64),
        }.items()
    }
    target = {name: array.copy() for name, array in golden.items()}
    attention = target["model.layers.0.attn"].reshape(6, -1)
    attention[:, DEPTH : 2 * DEPTH] *= -1
    target["model.layers.0.attn"] = attention
    target["model.layers.0.mlp"] = golden["model.layers.0.mlp"] * np.float32(1.9)
    target["model.layers.0.mlp"][1, 3, 5] = np.nan
    target["model.layers.0.mlp.act"] = golden["model.layers.0.mlp.act"] + np.float32(0.5)
    target["model.layers.0.wide"] += np.float32(0.25)
    target["model.norm"] = np.roll(golden["model.norm"], 1, axis=1)
    for side, tensors in (("golden", golden), ("target", target)):
        (root / side).mkdir(parents=True)
        for name, array in tensors.items():
            np.save(root / side / f"{name}.npy", array)
    broken = root / "target" / "model.embed.broken.npy"
    np.save(root / "golden" / broken.name, golden["model.embed"])
    broken.write_bytes((root / "target" / "model.embed.npy").read_bytes()[:200])
    return root / "golden", root / "target"
