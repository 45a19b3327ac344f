"""Collect the sentences of the library for translators: a Babel extractor.

    f"relative L2 {error:.2g}, golden is {norm}"   ─▶  "relative L2 {0}, golden is {1}"

A sentence is a text of several words that is neither a docstring nor a log message. The pages find by its
translation how to say what the library puts together from it: see `firstdrift_frontend.sentences`.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from typing import BinaryIO

_WORDS = re.compile(r"[A-Za-z]{2,}\W* |\b[A-Za-z]{2,}: | [a-z]{2,}")
_LOGGERS = frozenset({"log", "logger", "re"})


def extract(
    file: BinaryIO,
    keywords: Collection[str],  # noqa: ARG001 - Babel gives it by name, as the others
    comment_tags: Collection[str],  # noqa: ARG001
    options: Mapping[str, object],  # noqa: ARG001
) -> Iterator[tuple[int, None, str, list[str]]]:
    """Give each sentence of a module, as Babel asks for it: line, no function, text, no comments."""
    tree = ast.parse(file.read())
    passed_over = {id(part) for node in ast.walk(tree) for part in _no_sentences(node)}
    for node in ast.walk(tree):
        for text in _counts(node):
            yield node.lineno, None, text, []
        if id(node) not in passed_over and isinstance(node, ast.Constant | ast.JoinedStr):
            text = _pattern(node)
            if _WORDS.search(re.sub(r"\{\d+\}", "", text)):
                yield node.lineno, None, text, []


def _counts(node: ast.AST) -> Iterator[str]:
    """Give what `counted(number, "file")` says of one and of several: "{0} file", "{0} files"."""
    match node:
        case ast.Call(func=ast.Name(id="counted"), args=[_, *nouns]) if nouns:
            words = [noun.value for noun in nouns if isinstance(noun, ast.Constant)]
            if len(words) == len(nouns):
                yield from (f"{{0}} {words[0]}", f"{{0}} {words[1] if words[1:] else f'{words[0]}s'}")


def _no_sentences(node: ast.AST) -> Iterator[ast.AST]:
    """Give what in a node is no sentence of its own: docstrings, log messages, pieces of f-strings."""
    match node:
        case ast.Expr(value=ast.Constant()):
            yield node.value
        case ast.JoinedStr(values=values):
            for value in values:
                yield from [value] if isinstance(value, ast.Constant) else _format(value)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _LOGGERS:
            yield from ast.walk(node)
        case ast.arg(annotation=ast.AST() as annotation) | ast.AnnAssign(annotation=annotation):
            yield from ast.walk(annotation)
        case ast.FunctionDef(returns=ast.AST() as returns):
            yield from ast.walk(returns)


def _format(value: ast.expr) -> Iterator[ast.AST]:
    if isinstance(value, ast.FormattedValue) and value.format_spec is not None:
        yield from ast.walk(value.format_spec)


def _pattern(node: ast.Constant | ast.JoinedStr) -> str:
    """Write a text with numbered gaps; braces of its own are doubled where it has gaps, as for str.format."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    pieces, gaps = [], 0
    for value in node.values:
        if isinstance(value, ast.Constant):
            pieces.append(str(value.value).replace("{", "{{").replace("}", "}}"))
        else:
            pieces.append(f"{{{gaps}}}")
            gaps += 1
    return "".join(pieces)
