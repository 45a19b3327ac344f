"""The report for people: small whatever was compared, harmless whatever names are; it says what matters."""

import math
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from library.dumps.hostile_names import write_hostile_dumps
from msgspec.structs import replace

from firstdrift import Report, compare
from firstdrift.cli import main
from firstdrift.exports.summary import Layer, NodeLine, SliceLine, Summary, summary_of
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import NodeClass, Verdict
from firstdrift.wording.message import verbatim
from firstdrift.wording.text import text_of
from firstdrift_frontend.rendering import in_line, in_markdown
from firstdrift_frontend.report import LARGEST, layer_map, report_html, report_markdown


@pytest.fixture(scope="module")
def summary(unpacked: Callable[[str], Path]) -> Summary:
    pair = unpacked("msprobe/llama_stat_mix_perturb")
    return summary_of(compare(pair / "golden", pair / "target"))


def large(summary: Summary, name: str = "model.layers.%d.mlp.down_proj") -> Summary:
    """A comparison of 128 layers, 1000 tokens, and many bad nodes."""
    slices = tuple(
        SliceLine(Coordinates(step=0, rank=0, token=token), Verdict.ERROR, 0.1, of_logits=True)
        for token in range(1000)
    )
    layers = tuple(
        Layer(
            token,
            f"model.layers.{layer}",
            layer * 10,
            layer * 10 + 9,
            Verdict.PASS,
            10.0 ** -((token * 7 + layer) % 9),
        )
        for token in range(1000)
        for layer in range(128)
    )
    nodes = tuple(
        NodeLine(
            slices[number].coordinates,
            name % number if "%d" in name else name,
            name,
            Verdict.ERROR,
            NodeClass.PROPAGATED,
            tuple(map(verbatim, ("its inputs already differ (0.1)", name, name, name))),
            0.1,
            None,
            math.inf,
            None,
        )
        for number in range(150)
    )
    return replace(
        summary, slices=slices, layers=layers, worst=nodes, bad=100_000, notes=(verbatim(name),) * 1000
    )


def test_a_report_of_128_layers_and_1000_tokens_is_below_2_mb(summary: Summary) -> None:
    page = report_html(large(summary)).encode()
    assert len(page) < LARGEST
    assert b'data-says="150-of-100000"' in page
    drawn = layer_map(large(summary))
    assert drawn is not None
    assert (len(drawn.layers), drawn.every) == (128, 6)


def test_layers_that_pass_are_light_in_a_report_and_those_that_fail_dark(summary: Summary) -> None:
    for verdict, shades in ((Verdict.PASS, "012"), (Verdict.ERROR, "45678")):
        layers = tuple(replace(layer, verdict=verdict) for layer in large(summary).layers)
        drawn = layer_map(replace(large(summary), layers=layers))
        assert drawn is not None
        assert {shade.name for shade in drawn.shades} <= set(shades)


@pytest.mark.parametrize(
    "name",
    ["\x1b[31m" * 9000, "." * 40_000, "<script>alert(1)</script>" * 2000, "\U0001f600" * 9000, "\ud800"],
)
def test_names_make_a_report_neither_large_nor_harmful(summary: Summary, name: str) -> None:
    page = report_html(large(summary, name))
    assert len(page.encode()) < LARGEST
    assert "<script" not in page
    outside_of_code = re.sub("`[^`]*`", "", report_markdown(large(summary, name)))
    assert not re.search(r"(?<!\\)<script", outside_of_code)


def test_hostile_dumps_make_harmless_reports(tmp_path: Path) -> None:
    report: Report = compare(*write_hostile_dumps(tmp_path))
    page = report_html(summary_of(report))
    body = re.sub("<style>.*?</style>", "", page, flags=re.DOTALL)
    assert not re.findall(r"<(?:script|iframe|img|form|object|link(?! rel=\"icon\" href=\"data:,\"))", body)
    assert not re.findall(r"""\son\w+\s*=""", re.sub(r">[^<]*<|\"[^\"]*\"", "", body))


def test_a_report_says_what_the_comparison_found(summary: Summary) -> None:
    page = report_html(summary)
    assert text_of(summary.findings.summary) in unescape(page)
    for node in summary.worst[:3]:
        assert re.sub("[^a-zA-Z]", "", node.name) in re.sub("<[^>]+>|[^a-zA-Z<>]", "", page)
    assert summary.worst[0].node_class is NodeClass.WEIGHTS_DIFFER, "where the error begins comes first"
    assert summary.golden.format in page


def test_the_map_marks_the_layer_of_the_first_bad_node(summary: Summary) -> None:
    drawn = layer_map(summary)
    assert drawn is not None
    assert drawn.first is not None
    row, column = drawn.first
    node = summary.findings.first_bad_node
    assert node is not None
    assert node.module is not None
    assert node.module.startswith(f"{drawn.layers[column]}.")
    assert row == 0


def test_the_command_writes_a_report(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    pair, file = unpacked("msprobe/llama_stat_mix_perturb"), tmp_path / "report.html"
    arguments = ["compare", str(pair / "golden"), str(pair / "target"), "--html", str(file)]
    assert CliRunner().invoke(main, arguments).exit_code == 1
    assert file.read_text("utf-8").startswith("<!doctype html>")
    refused = CliRunner().invoke(main, [*arguments[:-1], str(tmp_path / "none" / "report.html")])
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("text", "code", "plain"),
    [
        ("a.b_c", "`a.b_c`", "a.b_c"),
        ("a|b", "`a\\|b`", "a\\|b"),
        ("`x`", "`` `x` ``", "\\`x\\`"),
        ("a\n# b", "`a # b`", "a # b"),
        ("*a* [b](c) <d>", "`*a* [b](c) <d>`", "\\*a\\* \\[b\\](c) \\<d\\>"),
        ("\x1b[31m", "`\\x1b[31m`", "\\\\x1b\\[31m"),
    ],
)
def test_names_in_markdown_are_only_names(text: str, code: str, plain: str) -> None:
    assert (in_markdown(text), in_line(text)) == (code, plain)
