from firstdrift.wording.message import Message
from firstdrift.wording.text import pieces_of, text_of


def test_a_word_in_the_place_of_a_name_has_no_spaces_around_it_in_chinese() -> None:
    weight = Message.of("cause.weight")
    said = Message.of("cause.contains", tensor=weight, what="NaN")
    assert text_of(said, "zh") == "目标的权重含有 NaN"


def test_names_keep_their_spaces_in_chinese() -> None:
    said = Message.of("cause.contains", tensor="我 的", what="NaN")
    assert text_of(said, "zh") == "目标的 我 的 含有 NaN"
    assert text_of(said) == "the target's 我 的 contains NaN"


def test_nor_are_there_spaces_around_a_word_where_names_are_links() -> None:
    off = Message.of("off.by", size=Message.of("size.at_least", error=0.006))
    pieces = pieces_of(Message.of("summary.off_in", where="…", off=off), {"where": "/c/1"}, "zh")
    assert "偏差至少 0.600 %" in "".join(piece.text for piece in pieces)
    assert any(piece.address for piece in pieces)


def test_names_that_are_links_keep_their_spaces() -> None:
    said = Message.of("cause.contains", tensor="我 的", what="NaN")
    assert "".join(piece.text for piece in pieces_of(said, {"tensor": "/"}, "zh")) == text_of(said, "zh")
