"""Ask msprobe what a layer mapping matches: its node, and its tensor, for each of the target dump.

python map_layers.py GOLDEN TARGET MAPPING ANSWER
"""

import json
import sys
from pathlib import Path

from msprobe.core.compare.layer_mapping import (
    generate_api_mapping_by_layer_mapping,
    generate_data_mapping_by_layer_mapping,
)

golden, target = (str(Path(folder) / "dump.json") for folder in sys.argv[1:3])
nodes = generate_api_mapping_by_layer_mapping(target, golden, sys.argv[3])
tensors = generate_data_mapping_by_layer_mapping({"npu_path": target, "bench_path": golden}, sys.argv[3])
Path(sys.argv[4]).write_text(json.dumps({"nodes": nodes, "tensors": tensors}))
