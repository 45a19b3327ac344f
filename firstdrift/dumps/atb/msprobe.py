"""Read the ATB dumps of msprobe.

atb_dump_data/data/0_4242/3/20_Decoder_layer/after/outtensor0.bin
"""

from firstdrift.dumps.atb.layout import AtbLayout
from firstdrift.dumps.atb.reader import AtbReader, part_of_atb
from firstdrift.wording.message import Message


class MsprobeAtbReader(AtbReader):
    """The `DumpReader` of msprobe's ATB dumps."""

    format = "msprobe-atb"
    title = Message.of("dumps.atb.msprobe_title")
    marks = ("atb_dump_data",)
    part = part_of_atb(r"/atb_dump_data(?:/|$)")
    layout = AtbLayout(
        holder=("atb_dump_data", "data"), models="info/model/{process}", layers="info/layer/{process}"
    )
