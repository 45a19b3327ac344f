"""Which layers of different slices share a column of the map."""

from firstdrift.exports.layer_columns import LayerColumns, layer_columns, moment_of
from firstdrift.model.slice import Coordinates


def columns_of(*slices: list[str], together: bool = False) -> LayerColumns:
    ran = [Coordinates(token=0 if together else at, rank=at) for at in range(len(slices))]
    return layer_columns((moment_of(ran[at]), path) for at, paths in enumerate(slices) for path in paths)


def stack(name: str, *numbers: int) -> list[str]:
    return [f"{name}.{number}" for number in numbers]


def test_layers_of_one_name_have_a_column_each() -> None:
    assert columns_of(stack("layers", 0, 1), stack("layers", 0, 1)).names == ("layers.0", "layers.1")


def test_what_another_slice_calls_by_another_name_shares_the_columns() -> None:
    found = columns_of(stack("Prefill_layer", 0, 1), stack("Decoder_layer", 0, 1), stack("Decoder_layer", 1))
    assert found.names == ("Prefill_layer.0, Decoder_layer.0", "Prefill_layer.1, Decoder_layer.1")
    assert found.of_path["Decoder_layer.1"] == found.of_path["Prefill_layer.1"] == 1


def test_stacks_of_one_slice_stay_apart() -> None:
    assert len(columns_of(stack("encoder", 0, 1) + stack("decoder", 0, 1)).names) == 4
    found = columns_of(stack("vision", *range(4)) + stack("prefill", 0, 1), stack("decode", 0, 1))
    assert found.of_path["decode.1"] == found.of_path["prefill.1"] == 5
    assert len(found.names) == 6


def test_stacks_of_ranks_that_run_together_stay_apart() -> None:
    assert len(columns_of(stack("vision", 0, 1), stack("text", 0, 1), together=True).names) == 4


def test_a_stack_that_may_be_one_or_another_has_columns_of_its_own() -> None:
    assert len(columns_of(stack("vision", 0, 1) + stack("text", 0, 1), stack("decode", 0, 1)).names) == 6


def test_stacks_without_a_common_number_stay_apart() -> None:
    assert columns_of(stack("a", 0), stack("b", 1)).names == ("a.0", "b.1")
