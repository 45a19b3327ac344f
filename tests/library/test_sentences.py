"""What the library says, said in another language."""

from firstdrift_frontend.sentences import sayer

PATTERNS = {
    "its weight differs": "W",
    "inputs agree ({0}), output does not ({1})": "A({0}) B({1})",
    "{0} against {1}": "{1} vs {0}",
    "relative L2 {0}": "L2={0}",
    "{0} is the first bad node: {1}.": "{0}! {1}",
    "a {{brace}} in {0}": "{{}} {0}",
}


def test_a_sentence_is_said_with_all_that_stands_in_its_gaps() -> None:
    say = sayer(PATTERNS)
    assert say("its weight differs") == "W"
    assert say("inputs agree (relative L2 1e-7), output does not (3 against 4)") == "A(L2=1e-7) B(4 vs 3)"
    assert say("model.layers.7 is the first bad node: its weight differs.") == "model.layers.7! W"
    assert say("a {brace} in x") == "{} x"


def test_a_sentence_of_several_is_said_part_by_part() -> None:
    assert sayer(PATTERNS)("its weight differs; relative L2 2; and more") == "W; L2=2; and more"


def test_what_is_not_known_stays_as_it_is() -> None:
    say = sayer(PATTERNS)
    assert say("nothing like it {0} %s") == "nothing like it {0} %s"
    assert say("") == say(None) == ""
    assert sayer({})("its weight differs") == "its weight differs"


def test_names_from_dumps_cannot_break_a_sentence() -> None:
    say = sayer(PATTERNS)
    assert say("{1}.{x} is the first bad node: its weight differs.") == "{1}.{x}! W"
    assert say("a\nb is the first bad node: its weight differs.") == "a\nb! W"
