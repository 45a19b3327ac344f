"""What the library says, said in another language."""

from firstdrift.errors import DumpNotFoundError
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


def test_an_error_with_its_file_and_what_to_try_is_said_sentence_by_sentence() -> None:
    say = sayer({"{0}.": "{0}!", "{0}. {1}": "{0}! {1}", "it is gone": "G", "Look for {0}": "L({0})"})
    error = DumpNotFoundError("it is gone", path="/data/run.1", hint="Look for it in x.y")
    assert say(str(error)) == "/data/run.1: G! L(it in x.y)!"


def test_what_is_listed_in_a_sentence_is_listed_in_it() -> None:
    say = sayer({"Choose one of {0}": "从 {0} 中选择", "{0} of {1}": "{1} 的 {0}"})
    assert say("Choose one of firstdrift, msprobe, msit") == "从 firstdrift, msprobe, msit 中选择"


def test_parts_that_were_put_together_are_said_as_what_they_are() -> None:
    known = {
        "the difference lies in index {0} {1}, alone": "only {1} at {0}",
        "of dimension {0}": "dim {0}",
        ": block {0} of {1}": " (block {0}/{1})",
        "{0} of {1}": "{1}'s {0}",
        "at least ": ">= ",
        "relative L2 {0}": "L2={0}",
        "target is golden": "same",
        "rounded to {0}": "as {0}",
        "target is {0}": "{0}!",
        "golden with the sign flipped": "-",
        "{0} names": "{0}n",
        "without a role: outputs": "no role",
    }
    say = sayer(known)
    assert (
        say("the difference lies in index 3 of dimension 1, alone: block 1 of 4")
        == "only dim 1 at 3 (block 1/4)"
    )
    assert say("relative L2 at least 2") == "L2=>= 2"
    assert say("target is golden rounded to half") == "same as half"
    assert say("3 names without a role: outputs") == "3n no role"
    assert say("target is golden with the sign flipped") == "-!"


def test_what_is_not_known_stays_as_it_is() -> None:
    say = sayer(PATTERNS)
    assert say("nothing like it {0} %s") == "nothing like it {0} %s"
    assert say("") == say(None) == ""
    assert sayer({})("its weight differs") == "its weight differs"


def test_names_from_dumps_cannot_break_a_sentence() -> None:
    say = sayer(PATTERNS)
    assert say("{1}.{x} is the first bad node: its weight differs.") == "{1}.{x}! W"
    assert say("a\nb is the first bad node: its weight differs.") == "a\nb! W"
