"""What became of the entries of a mapping file: which matched nodes, and why others did not."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from msgspec import Struct, field

from firstdrift.matching.fused.find_fused import complete_join, join_operators
from firstdrift.matching.manual.mapping import MappingEntry, MappingFile
from firstdrift.matching.pairing import Join, Pairing
from firstdrift.matching.plan import Origin
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tree import is_operator
from firstdrift.wording.message import Message


class Applied(Struct):
    """Matches what a file says, and keeps what became of each entry."""

    work: Pairing
    mapping: MappingFile
    used: set[MappingEntry] = field(default_factory=set)
    failures: dict[MappingEntry, Message] = field(default_factory=dict)

    def match(self, pair: Pair, entries: Sequence[MappingEntry]) -> bool:
        """Record that two nodes are the same, unless another rule said otherwise; tell whether they are."""
        *_, entry = entries
        if self.work.is_free(pair):
            self._add(pair, self.mapping.name_entry(entry))
        if pair[1] in self.work.found and pair[0] in self.work.partners:
            self.used.update(entries)
        else:
            self.fail(entry, Message.of("matching.mapping.matched_otherwise"))
        return self.is_matched(pair)

    def match_all(
        self, golden: tuple[int, ...], target: tuple[int, ...], entries: Sequence[MappingEntry]
    ) -> bool:
        """Record that nodes are the same, several that were fused into one; tell whether they are matched."""
        work, pairs = self.work, list(product(golden, target))
        if all(map(work.is_free, pairs)):
            reason = self.mapping.name_entry(entries[0])
            if len(pairs) == 1:
                work.add_sure(pairs[0], Origin.MAPPING, (reason,))
            elif min(len(golden), len(target)) == 1:
                work.add_join(Join(golden, target, Origin.MAPPING, 1.0, (reason,)))
        are_matched = set(pairs) <= set(work.pairs_of(golden, target))
        self.used.update(entries if are_matched else ())
        return are_matched

    def _add(self, pair: Pair, reason: Message) -> None:
        work = self.work
        join = complete_join(work, self._modules_of(pair), Origin.MAPPING, reason)
        if join is not None:
            work.add_join(join)
            join_operators(work, join)
        if pair[1] not in work.found:
            work.add_sure(pair, Origin.MAPPING, (reason,))

    def name_tensors(self, pair: Pair, golden: str | None, target: str | None) -> None:
        """Record which golden tensor of a match a target tensor is."""
        if golden is not None and target is not None:
            self.work.said_tensors.setdefault(pair, {})[target] = golden

    def share_arguments(self, pair: Pair) -> None:
        """Let two operators of other names that are the same share their arguments, in both passes.

        Those are that have the same key and are tensors, or the same value.
        """
        work = self.work
        passes = [pair, (work.golden.backward_of(pair[0]), work.target.backward_of(pair[1]))]
        for golden, target in passes:
            if golden is None or target is None:
                continue
            known = {record.label: record for record in work.golden.nodes[golden].tensors}
            for record in work.target.nodes[target].tensors:
                other = known.get(record.label)
                if other is not None and (
                    (record.is_tensor and other.is_tensor) or record.scalar == other.scalar
                ):
                    self.name_tensors((golden, target), record.label, record.label)

    def is_matched(self, pair: Pair) -> bool:
        """Tell whether two nodes are matched with each other."""
        match = self.work.found.get(pair[1])
        return match is not None and match.golden == pair[0]

    def are_in_one_match(self, pair: Pair) -> bool:
        """Tell whether two nodes are matched with each other, alone or with what they were fused with."""
        return self.work.partners.get(pair[0], -1) == self.work.first_target(pair[1])

    def _modules_of(self, pair: Pair) -> Pair:
        """Return the modules that run two operators, which may have been fused; modules stay as they are."""
        work = self.work
        around = work.golden.parents[pair[0]], work.target.parents[pair[1]]
        have_modules = around[0] != work.golden.root and around[1] != work.target.root
        return around if have_modules and is_operator(work.target.nodes[pair[1]]) else pair

    def fail(self, entry: MappingEntry, why: Message) -> None:
        """Remember why an entry did not match a node."""
        self.failures.setdefault(entry, why)

    def notes(self, why_never: Callable[[MappingEntry], Message]) -> Iterator[Message]:
        """Say of each entry that matched nothing why not."""
        for entry in self.mapping.entries:
            if entry in self.used:
                continue
            if not self.mapping.may_quote:
                yield Message.of("matching.mapping.unused_line", file=self.mapping.name, line=entry.line)
            else:
                why = self.failures.get(entry) or why_never(entry)
                entry_name = self.mapping.name_entry(entry)
                yield Message.of("matching.mapping.unused", entry=entry_name, why=why)
