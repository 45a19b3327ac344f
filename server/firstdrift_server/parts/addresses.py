"""Where things are found: every view has an address."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

from firstdrift.paths import spelt


def address(path: str, /, **parameters: object) -> str:
    """Return an address with parameters; those that are None are left out."""
    return with_query(
        path, query_of((name, value) for name, value in parameters.items() if value is not None)
    )


def comparison_address(comparison: int, **parameters: object) -> str:
    """Return the address of a comparison."""
    return address(f"/c/{comparison}", **parameters)


def tree_address(comparison: int, slice_: int, **parameters: object) -> str:
    """Return the address of the tree of a slice."""
    return address(f"/c/{comparison}/s/{slice_}/tree", **parameters)


def graph_address(comparison: int, slice_: int, **parameters: object) -> str:
    """Return the address of the graph of a slice."""
    return address(f"/c/{comparison}/s/{slice_}/graph", **parameters)


def node_address(comparison: int, slice_: int, row: int) -> str:
    """Return the address of a node."""
    return f"/c/{comparison}/s/{slice_}/n/{row}"


def tensor_address(node: str, key: str) -> str:
    """Return the address of a node's page on which a pair of its tensors is seen from near."""
    return address(node, tensor=key)


def unmatched_address(comparison: int, slice_: int) -> str:
    """Return the address of the list of what has no partner in a slice."""
    return f"/c/{comparison}/s/{slice_}/unmatched"


def match_address(comparison: int, slice_: int, **parameters: object) -> str:
    """Return the address of the page on which nodes of a slice are matched by hand."""
    return address(f"/c/{comparison}/s/{slice_}/match", **parameters)


def likely_address(comparison: int, slice_: int) -> str:
    """Return the address of the matches that would resolve most of what a slice has no partner for."""
    return f"/c/{comparison}/s/{slice_}/likely"


def share_address(comparison: int, **parameters: object) -> str:
    """Return the address of the page of the links to a comparison."""
    return address(f"/c/{comparison}/share", **parameters)


def dump_address(dump: int, **parameters: object) -> str:
    """Return the address of a dump without a partner."""
    return address(f"/dumps/{dump}", **parameters)


def dump_tree_address(dump: int, slice_: int, **parameters: object) -> str:
    """Return the address of the tree of a slice of a dump."""
    return address(f"/dumps/{dump}/s/{slice_}/tree", **parameters)


def dump_node_address(dump: int, slice_: int, row: int) -> str:
    """Return the address of a node of a dump."""
    return f"/dumps/{dump}/s/{slice_}/n/{row}"


def rules_address(comparison: int) -> str:
    """Return the address of the page on which the rules of a comparison are chosen."""
    return f"/c/{comparison}/rules"


def query_of(parameters: Mapping[str, object] | Iterable[tuple[str, object]]) -> str:
    """Write parameters as the part of an address after the question mark; paths and names are `spelt`."""
    pairs = parameters.items() if isinstance(parameters, Mapping) else parameters
    return urlencode([(name, spelt(str(value))) for name, value in pairs])


def with_query(path: str, query: str) -> str:
    """Return an address that ends in a query, if there is one."""
    return f"{path}?{query}" if query else path
