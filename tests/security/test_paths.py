import os
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firstdrift.errors import PathOutsideRootsError
from firstdrift.paths import inside, spelt, unspelt

LINKS = {
    "link-to-directory": "../outside",
    "link-to-file": "../outside/key",
    "link-to-sibling": "../dumps-secret",
    "link-to-top": "/",
    "link-to-link": "link-to-directory",
    "loop": "loop",
    "link-inside": "run1",
    "run1/link-up": "../..",
}
"""What lies in a root beside its dumps: links, most of which lead out."""


def make_links(root: Path) -> None:
    for name, target in LINKS.items():
        (root / name).symlink_to(target)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root to be served, `dumps`, with everything around it that must not be."""
    top = tmp_path_factory.mktemp("tree").resolve()
    (top / "dumps/run1/step0").mkdir(parents=True)
    (top / "dumps/run1/dump.json").write_text("{}")
    (top / "dumps-secret").mkdir()
    (top / "dumps-secret/key").write_text("s")
    (top / "outside").mkdir()
    (top / "outside/key").write_text("s")
    make_links(top / "dumps")
    return top


@pytest.fixture
def served(tree: Path) -> Iterator[Path]:
    """The root, which is also the working directory, so that relative paths start there."""
    with chdir(tree / "dumps"):
        yield tree / "dumps"


OUTSIDE = [
    "..",
    "../",
    "../outside/key",
    "../dumps-secret/key",
    "../dumps-secret",
    "./../outside",
    "run1/../../outside/key",
    "run1/step0/../../../outside",
    "run1/./../.././outside",
    "run1//..//..//outside",
    "nothing/../../outside",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "/./etc/passwd",
    "/etc/../etc/passwd",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/dev/fd/0",
    "~/../..",
    "link-to-directory",
    "link-to-directory/key",
    "link-to-file",
    "link-to-sibling/key",
    "link-to-top/etc/passwd",
    "link-to-link/key",
    "link-inside/../../outside/key",
    "run1/link-up",
    "run1/link-up/outside/key",
    "link-to-directory/../dumps-secret/key",
    "loop",
    "loop/key",
    "loop/../link-to-directory/key",
    "a\0b",
    "\0",
    "../outside/key\0.json",
    "\ud800",
]
INSIDE = {
    "": "",
    ".": "",
    "run1": "run1",
    "run1/": "run1",
    "run1/../run1/step0": "run1/step0",
    "run1/step0/../dump.json": "run1/dump.json",
    "link-inside/step0": "run1/step0",
    "run1/link-up/dumps/run1": "run1",
    # No traversal at all: to the file system these are odd names of things that do not exist.
    "..%2f..%2fetc%2fpasswd": "..%2f..%2fetc%2fpasswd",
    "%2e%2e/run1": "%2e%2e/run1",
    "..\\..\\outside": "..\\..\\outside",
    "file:/etc/passwd": "file:/etc/passwd",
    "...": "...",
    "~root": "~root",
    "run1#../outside": "run1#../outside",
}


@pytest.mark.parametrize("spelling", OUTSIDE, ids=ascii)
def test_nothing_outside_the_roots_is_reached(served: Path, spelling: str) -> None:
    with pytest.raises(PathOutsideRootsError):
        inside([served], spelling)


@pytest.mark.parametrize(("spelling", "real"), INSIDE.items(), ids=ascii)
def test_what_lies_inside_is_reached_by_its_real_path(served: Path, spelling: str, real: str) -> None:
    assert inside([served], spelling) == served / real


def test_a_root_that_is_a_link_serves_what_it_points_to(tree: Path) -> None:
    link = tree / "root-link"
    link.symlink_to("dumps")
    assert inside([link], link / "run1") == tree / "dumps/run1"


def test_without_roots_nothing_is_reached(served: Path) -> None:
    with pytest.raises(PathOutsideRootsError):
        inside([], served)


def test_any_of_several_roots_will_do(tree: Path) -> None:
    roots = [tree / "dumps", tree / "outside"]
    assert inside(roots, tree / "outside/key") == tree / "outside/key"


def test_a_refusal_does_not_tell_what_exists_outside(served: Path) -> None:
    def refusal(path: str) -> str:
        with pytest.raises(PathOutsideRootsError) as caught:
            inside([served], path)
        return str(caught.value)

    assert refusal("../outside/key") == refusal("../outside/no-such-key")
    assert "outside/key" not in refusal("../outside/key")


pieces = st.one_of(
    st.sampled_from(
        [
            "..",
            ".",
            "",
            "/",
            "~",
            "run1",
            "step0",
            "link-to-directory",
            "link-to-top",
            "loop",
            "link-up",
            "outside",
            "etc",
        ]
    ),
    st.text(max_size=8),
)


@settings(max_examples=2000)
@given(parts=st.lists(pieces, max_size=8), absolute=st.booleans())
@example(parts=["run1", "link-up", "outside"], absolute=False)
@example(parts=["loop", "..", "link-to-directory"], absolute=False)
@example(parts=["x" * 5000], absolute=False)
def test_whatever_is_asked_for_the_answer_lies_inside_or_is_a_refusal(
    tree: Path, parts: list[str], absolute: bool
) -> None:
    root = tree / "dumps"
    asked = "/".join(parts)
    try:
        answer = inside([root], f"/{asked}" if absolute else f"{root}/{asked}")
    except PathOutsideRootsError:
        return
    assert answer.parts[: len(root.parts)] == root.parts
    assert ".." not in answer.parts
    assert answer.resolve() == answer


@given(st.binary(min_size=1, max_size=20).filter(lambda name: b"\0" not in name))
def test_a_name_that_is_no_utf8_is_spelt_so_that_it_comes_back(name: bytes) -> None:
    path = os.fsdecode(name)
    spelling = spelt(path)
    spelling.encode()
    if spelling != path:  # of others, `inside` looks what is there
        assert unspelt(spelling) == path


def test_a_spelling_leads_out_as_little_as_the_path_itself(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xb2\xe2")
    root, outside = tmp_path / "root", tmp_path / name
    for folder in (root / name, outside):
        folder.mkdir(parents=True)
    (root / r"\xb2\xe2 is text").mkdir()
    (root / f"{name}-out").symlink_to(outside)
    assert inside([root], spelt(root / name)) == root / name
    assert inside([root], f"{root}/\\xb2\\xe2 is text") == root / r"\xb2\xe2 is text"
    for wanted in (spelt(outside), f"{root}/\\xb2\\xe2-out", f"{root}/\\xb2\\xe2/../../\\xb2\\xe2"):
        with pytest.raises(PathOutsideRootsError):
            inside([root], wanted)
