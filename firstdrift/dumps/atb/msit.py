"""Read the ATB dumps of msit, formerly ait.

msit_dump_20250101_000000/tensors/0_4242/3/20_Decoder_layer/after/outtensor0.bin
"""

import re
from pathlib import Path

from firstdrift.dumps.atb.layout import AtbLayout
from firstdrift.dumps.atb.reader import AtbReader, part_of_atb
from firstdrift.dumps.storage.folders import sub_folders
from firstdrift.wording.message import Message

_DEVICE = re.compile(r"[0-9]+_[0-9]+", re.ASCII)
_MOST_NAMES = 200


class MsitAtbReader(AtbReader):
    """The `DumpReader` of msit's ATB dumps."""

    format = "msit-atb"
    title = Message.of("dumps.atb.msit_title")
    marks = ("tensors",)
    part = part_of_atb(r"/tensors/[0-9]+_[0-9]+(?:/|$)")
    layout = AtbLayout(holder=("tensors",), models="model/{pid}", layers="layer/{pid}")

    def is_marked(self, folder: Path) -> bool:
        """Tell whether folders of processes lie below a folder."""
        (holder,) = self.marks
        return any(_DEVICE.fullmatch(device.name) for device in sub_folders(folder / holder, _MOST_NAMES))
