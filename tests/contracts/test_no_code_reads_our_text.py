"""No code looks into what we say: it asks a message for its id and arguments, or a record for its fields.

Followed are the texts of messages and errors, in an expression and in the names it is given in a function.
"""

import ast
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import chain
from pathlib import Path
from string import Formatter

import pytest
from jinja2 import Environment, nodes

from firstdrift import errors
from firstdrift.wording.text import SOURCE, texts

ROOT = Path(__file__).parents[2]
PACKAGES = ("firstdrift", "server", "worker", "frontend")
SOURCES = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
FRONTEND = ROOT / "frontend" / "firstdrift_frontend"
TEMPLATES = sorted((FRONTEND / "templates").rglob("*.*"))
SCRIPTS = sorted((FRONTEND / "static").rglob("*.js"))

MAKES_TEXT = frozenset({"text_of", "texts_of", "rule_text", "said"})
ERRORS = frozenset({"error", "exc", "exception", "message", "reason", "problem", "refusal"})
READS = frozenset(
    {
        *("startswith", "endswith", "split", "rsplit", "splitlines", "partition", "rpartition"),
        *("removeprefix", "removesuffix", "find", "rfind", "index", "rindex", "count"),
    }
)
TEXT = texts(SOURCE)["dumps.not_permitted"]
SHORTEST = 5
"""So many words in a row are taken for a sentence of the catalogue."""

OF_OTHERS = "matching.yaml."
"""What PyYAML says, which is known by its words."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def offences_of(source: str) -> list[str]:
    """List where a module looks into a text of ours, or says one that is in the catalogue."""
    tree = ast.parse(source)
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, Function))]
    found = chain(chain.from_iterable(map(_readings, scopes)), _sentences(tree))
    return sorted(set(found), key=lambda offence: int(offence.partition(":")[0]))


def _readings(scope: ast.AST) -> Iterator[str]:
    known = {name for node in _own(scope) for name in _named(node)}
    known |= ERRORS - {name for node in ast.walk(scope) for name in _foreign(node)}
    for node in _own(scope):
        if any(_is_text(part, known) for part in _read_by(node)):
            yield f"{node.lineno}: {ast.unparse(node)[:90]}"


def _own(scope: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Give the parts of a function that are not those of a function in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.expr | ast.stmt):
            yield child
        if not isinstance(child, Function):
            yield from _own(child)


def _named(node: ast.AST) -> Iterator[str]:
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.NamedExpr(target=ast.Name(id=name), value=value)
        ) if _is_text(value, ERRORS):
            yield name


def _foreign(node: ast.AST) -> Iterator[str]:
    """Give the name of an error that is none of ours: what it says, others wrote."""
    match node:
        case ast.ExceptHandler(type=ast.expr() as kind, name=str(name)) if not _ours(kind):
            yield name


def _ours(kind: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and hasattr(errors, part.id) for part in ast.walk(kind))


def _read_by(node: ast.AST) -> list[ast.expr]:
    """Give what a node looks into: operands of comparisons, what is searched, split or matched."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others) if not any(
            isinstance(op, ast.Is | ast.IsNot) for op in ops
        ):
            return [left, *others]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=arguments):
            return arguments
        case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments) if method in READS:
            return [value, *arguments]
        case ast.Match(subject=subject):
            return [subject]
    return []


def _is_text(node: ast.expr, known: AbstractSet[str]) -> bool:
    match node:
        case ast.Name(id=name):
            return name in known - ERRORS
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in MAKES_TEXT:
            return True
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name) | ast.Attribute(attr=name)]):
            return name in known & ERRORS
        case ast.Attribute(value=ast.Name(id=name), attr="reason" | "hint"):
            return name in {"error", "exc"}
        case ast.Call(func=ast.Attribute(value=value, attr="lower" | "upper" | "strip" | "casefold")):
            return _is_text(value, known)
        case ast.JoinedStr(values=values):
            return any(
                isinstance(part, ast.FormattedValue) and _is_text(part.value, known) for part in values
            )
    return False


def _sentences(tree: ast.Module) -> Iterator[str]:
    """Give string literals that say what the catalogue says."""
    explained = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in explained:
            sentence = next((known for known in sentences() if known in node.value), None)
            if sentence is not None:
                yield f"{node.lineno}: says {sentence!r}"


@cache
def sentences() -> frozenset[str]:
    """Return the pieces of the texts of the catalogue that are long enough to tell one from another."""
    ours = [text for name, text in texts(SOURCE).items() if not name.startswith(OF_OTHERS)]
    pieces = (piece.strip(" ,.:;()") for text in ours for piece, *_ in Formatter().parse(text))
    return frozenset(piece for piece in pieces if len(re.findall(r"[A-Za-z]{2,}", piece)) >= SHORTEST)


def offences_of_template(source: str) -> list[str]:
    """List where a template looks into what it says."""
    tree = Environment(extensions=["jinja2.ext.i18n"], autoescape=True).parse(source)
    found = []
    for compared in tree.find_all(nodes.Compare):
        parts = (compared.expr, *(operand.expr for operand in compared.ops))
        found += [f"{compared.lineno}: a comparison" for part in parts if _says(part)]
    for called in tree.find_all(nodes.Call):
        if isinstance(called.node, nodes.Getattr) and called.node.attr in READS and _says(called.node.node):
            found.append(f"{called.lineno}: {called.node.attr}")
    return found


def _says(node: nodes.Expr) -> bool:
    return isinstance(node, nodes.Filter) and node.name in {"said", "rule"}


READING_SCRIPT = re.compile(
    r"""(?:error|refused|reason|message|found)\.(?:message|text|error|hint|reason)\s*
        (?:===|!==|==|!=|\.(?:startsWith|endsWith|includes|indexOf|match|search|split|replace)\()
      | \.test\((?:error|refused|reason|message)\.""",
    re.VERBOSE,
)


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_module_looks_into_a_text(file: Path) -> None:
    assert offences_of(file.read_text("utf-8")) == []


def test_no_template_looks_into_a_text() -> None:
    assert len(TEMPLATES) > 30
    found = {file.name: offences_of_template(file.read_text("utf-8")) for file in TEMPLATES}
    assert {name: offences for name, offences in found.items() if offences} == {}


def test_no_script_looks_into_a_text() -> None:
    assert len(SCRIPTS) > 30
    assert [file.name for file in SCRIPTS if READING_SCRIPT.search(file.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "planted",
    [
        'if text_of(reason) == "it is gone": pass',
        'if "gone" in text_of(error.message): pass',
        'text_of(reason).startswith("it")',
        'text_of(reason).lower().endswith("gone")',
        "re.search(pattern, text_of(reason))",
        'text_of(reason).split("; ")',
        'f"{text_of(reason)}.".partition(":")',
        "match text_of(reason):\n    case 'gone': pass",
        'if str(error) == "it is gone": pass',
        "try: pass\nexcept FirstdriftError as error:\n    why = str(error).split()",
        'str(message).count("gone")',
        'if error.reason == "it is gone": pass',
        'if "gone" in error.hint: pass',
        'said(reason).removeprefix("it ")',
        'def f(reason):\n    text = text_of(reason)\n    return text == "gone"',
        'def f(reason):\n    if (text := text_of(reason)):\n        return text.split(": ")',
        f'RULE = "the processes ended: {TEXT}"',
        f'print(f"{{path}}: {TEXT}")',
    ],
)
def test_what_looks_into_a_text_is_found(planted: str) -> None:
    assert offences_of(planted)


@pytest.mark.parametrize(
    "harmless",
    [
        'if reason.id == "dumps.gone": pass',
        "try: pass\nexcept re.error as error:\n    why = str(error).split()",
        "if error.message is None: pass",
        "lines.append(text_of(reason))",
        'if path.name.startswith("rank"): pass',
        f'"""{TEXT}."""',
        'def f(reason):\n    return text_of(reason)\n\ndef g(text):\n    return text == "x"',
    ],
)
def test_what_looks_into_no_text_is_left_alone(harmless: str) -> None:
    assert offences_of(harmless) == []


@pytest.mark.parametrize(
    "planted",
    [
        "{% if reason | said == 'it is gone' %}{% endif %}",
        "{% if 'gone' in (reason | said) %}{% endif %}",
        "{{ (reason | said).split(':') | first }}",
        "{{ 'x' if (reason | said).startswith('it') }}",
    ],
)
def test_a_template_that_looks_into_a_text_is_found(planted: str) -> None:
    assert offences_of_template(planted)


@pytest.mark.parametrize(
    "planted",
    [
        'if (error.message === "it is gone") go();',
        'reason.text.startsWith("it")',
        "/gone/.test(error.message)",
    ],
)
def test_a_script_that_looks_into_a_text_is_found(planted: str) -> None:
    assert READING_SCRIPT.search(planted)
