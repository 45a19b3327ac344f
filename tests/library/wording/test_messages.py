"""A message is data until the edge, and every text is there in every language."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstdrift.catalogue.codec import from_text, to_text
from firstdrift.wording import text as module
from firstdrift.wording.message import Message, joined, verbatim
from firstdrift.wording.plain import message_object
from firstdrift.wording.text import number, text_of

TEXTS = {
    "en": {
        "count": "{nodes:node|nodes} {nodes:~is|are} off",
        "number": "{error:.1%}, {amplification}",
        "names": "one of {names}",
        "all": "from {names: and }",
        "cause": "since {why}",
    },
    "zh": {
        "count": "{nodes:个节点|个节点}",
        "names": "{names} 之一",
        "all": "来自 {names: 和 }",
        "cause": "因为{why}",
    },
}


@pytest.fixture(autouse=True)
def catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    general = module.texts("en")["clauses"], module.texts("zh")["clauses"]
    monkeypatch.setattr(
        module, "texts", lambda language: TEXTS[language] | {"clauses": general[language == "zh"]}
    )


@pytest.mark.parametrize(
    ("message", "english", "chinese"),
    [
        (Message.of("count", nodes=1), "1 node is off", "1 个节点"),
        (Message.of("count", nodes=1234), "1,234 nodes are off", "1,234 个节点"),
        (Message.of("names", names=("a", "b")), "one of a, b", "a、b 之一"),
        (Message.of("all", names=("a",)), "from a", "来自 a"),
        (Message.of("all", names=("a", "b")), "from a and b", "来自 a 和 b"),
        (Message.of("all", names=("a", "b", "c")), "from a, b and c", "来自 a、b 和 c"),
        (Message.of("cause", why=Message.of("count", nodes=2)), "since 2 nodes are off", "因为2 个节点"),
        (Message.of("number", error=0.015, amplification=1234567.8), "1.5%, 1.23e6", "1.5%, 1.23e6"),
        (Message.of("number", error="Infinity", amplification=math.nan), "inf%, nan", "inf%, nan"),
        (joined(verbatim("{a}"), verbatim("b")), "{a}; b", "{a}\uff1bb"),
        (Message.of("later.version", size=3), "later.version size=3", "later.version size=3"),
    ],
)
def test_a_message_is_said_in_the_language_of_its_reader(
    message: Message, english: str, chinese: str
) -> None:
    assert (text_of(message), text_of(message, "zh")) == (english, chinese)


_scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text()
_messages = st.recursive(
    st.builds(Message, st.text(), st.dictionaries(st.text(), _scalars)),
    lambda inner: st.builds(Message, st.text(), st.dictionaries(st.text(), inner)),
)


@given(_messages)
def test_a_message_comes_out_of_the_database_as_it_went_in(message: Message) -> None:
    assert to_text(from_text(Message, to_text(message))) == to_text(message)


def test_what_an_earlier_version_kept_is_a_text_that_is_shown_as_it_is() -> None:
    (read,) = from_text(tuple[Message, ...], to_text(("its weight differs",)))
    assert read == verbatim("its weight differs")
    assert text_of(read, "zh") == "its weight differs"


def test_json_carries_the_id_the_arguments_and_the_text() -> None:
    message = Message.of("cause", why=Message.of("count", nodes=2))
    assert message_object(message) == {
        "id": "cause",
        "arguments": {"why": {"id": "count", "arguments": {"nodes": 2}, "text": "2 nodes are off"}},
        "text": "since 2 nodes are off",
    }


def test_equal_messages_are_one_in_a_set() -> None:
    assert len({Message.of("names", names=("a",)), Message.of("names", names=("a",))}) == 1


@pytest.mark.parametrize(
    ("value", "spec", "written"),
    [
        (512.3, ".2g", "510"),
        (0.0123456, "", "0.0123"),
        (4.25e-7, ".2g", "4.3e-7"),
        (123456.0, "", "123,000"),
        (1e9, "g", "1e9"),
        (1108, ",", "1,108"),
        (0.0148, "percent", "1.48 %"),
        (1.19e-7, "percent", "1.19e-5 %"),
        (math.inf, "percent", "inf"),
    ],
)
def test_numbers_are_written_in_one_way(value: float, spec: str, written: str) -> None:
    assert number(value, spec) == written
