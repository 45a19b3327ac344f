from firstdrift.wording.message import Message
from firstdrift.wording.text import pieces_of, text_of


def test_a_word_in_the_place_of_a_name_has_no_spaces_around_it_in_chinese() -> None:
    weight = Message.of("cause.weight")
    said = Message.of("cause.contains", tensor=weight, what="NaN")
    assert text_of(said, "zh") == "目标的权重含有 NaN"


def test_names_keep_their_spaces_in_chinese() -> None:
    said = Message.of("cause.contains", tensor="我 的", what="NaN")
    assert text_of(said, "zh") == "目标的 我 的 含有 NaN"
    assert text_of(said) == "我 的 of the target contains NaN"


def test_nor_are_there_spaces_around_a_word_where_names_are_links() -> None:
    size = Message.of("size.at_least", error=0.006)
    said = Message.of("systematic.replaced", count=5, known=52, size=size)
    pieces = pieces_of(Message.of("summary.systematic", difference=said, rest="…"), {"rest": "/c/1"}, "zh")
    assert "偏离至少 0.600 %" in "".join(piece.text for piece in pieces)
    assert pieces[-1].address or pieces[-2].address


def test_names_that_are_links_keep_their_spaces() -> None:
    said = Message.of("cause.contains", tensor="我 的", what="NaN")
    assert "".join(piece.text for piece in pieces_of(said, {"tensor": "/"}, "zh")) == text_of(said, "zh")
