from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of


def test_a_word_in_the_place_of_a_name_has_no_spaces_around_it_in_chinese() -> None:
    weight = Message.of("cause.weight")
    said = Message.of("cause.contains", tensor=weight, what="NaN")
    assert text_of(said, "zh") == "目标的权重含有 NaN"


def test_names_keep_their_spaces_in_chinese() -> None:
    said = Message.of("cause.contains", tensor="我 的", what="NaN")
    assert text_of(said, "zh") == "目标的 我 的 含有 NaN"
    assert text_of(said) == "我 的 of the target contains NaN"
