"""A configuration of msprobe that saves the values around one node: what to dump next."""

import json

from firstdrift.model.names import parse_name
from firstdrift.verdict.judgement import Finding

CAPTURED_BY = "msprobe"
"""The format of the dumps that this configuration makes."""


def capture_config(finding: Finding, format_: str) -> str | None:
    """Write the config.json with which msprobe saves the tensors of a node, and of what runs inside it.

    None for dumps of other tools, for nodes that msprobe does not name, where values were compared already,
    and of what an optimizer did, which the values of a node do not tell.

    Args:
        finding: the node, in the slice in which it was found.
        format_: the format of the target dump.
    """
    if finding.is_by_optimizer:
        return None
    has_values = "relative_l2" in finding.metrics
    if format_ != CAPTURED_BY or has_values or parse_name(finding.target).direction == "none":
        return None
    at = finding.coordinates
    config = {
        "task": "tensor",
        "dump_path": "./captured",
        "rank": [] if at.rank is None else [at.rank],
        "step": [] if at.step is None else [at.step],
        "level": "mix",  # in which a module is named to save what runs inside it, too
        "tensor": {"scope": [], "list": [finding.target], "data_mode": ["all"]},
    }
    return json.dumps(config, indent=2)
