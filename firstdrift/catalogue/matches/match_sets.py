"""Match sets: what people decided of the matches of a comparison, in versions that never change.

    0 ── 1 ── 2 ── 3        each version lays its edits over those of the one before it
         └─── 4             undo went back to 1, and an edit there made 4: it cuts 2 and 3 off from redo

The version in force is a pointer: undo moves it to the parent, redo to the newest child. The results of a
version are a comparison of their own, with the edits in its options; those of version 0 are the comparison
that the set is laid over. Whoever changes what a set decides says which version they saw; if somebody else
was faster, they are told what has changed instead.

A set that is deleted keeps its versions, but not their results: restored, it has those of the version in
force made again.
"""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.comparisons.records import (
    Judging,
    compare_again,
    create_comparison,
    get_comparison,
    judging_of,
    set_note,
)
from firstdrift.catalogue.jobs.queue import INTERACTIVE
from firstdrift.catalogue.lookup import added, record_of, required
from firstdrift.catalogue.tables import ComparisonEntry, MatchSetEntry, MatchSetVersionEntry
from firstdrift.comparison.report import Options
from firstdrift.errors import ConflictError, NotInCatalogueError, SettingsError
from firstdrift.matching.manual.edits import Edit, checked
from firstdrift.matching.manual.mapping import MappingFile
from firstdrift.wording.message import Message

LONGEST_NAME = 200
MOST_EDITS = 10_000


class Version(Struct, frozen=True):
    """A version of a match set.

    Attributes:
        version: its number.
        parent: the version it was made from; 0 for the comparison as it was found.
        edits: what it adds to its parent; likewise mappings.
        results_id: the comparison that holds its results; None if that was removed.
    """

    version: int
    parent: int
    edits: tuple[Edit, ...]
    mappings: tuple[MappingFile, ...]
    results_id: int | None
    made_at: datetime

    def message(self) -> Message:
        """Say what it adds: "match golden a with target b; and 2 more"."""
        said = [edit.message() for edit in self.edits]
        said += [Message.of("matching.version.reads", file=mapping.name) for mapping in self.mappings]
        match said:
            case []:
                return Message.of("matching.version.nothing")
            case [only]:
                return only
        return Message.of("matching.version.several", first=said[0], more=len(said) - 1)


class MatchSet(Struct, frozen=True):
    """What people decided of the matches of a comparison.

    Attributes:
        comparison_id: over which comparison it is laid.
        version: the version in force; 0 where nothing is decided, or everything is undone.
        versions: all there are, oldest first, also those that are undone.
    """

    id: int
    comparison_id: int
    name: str
    version: int
    created_at: datetime
    versions: tuple[Version, ...]

    def chain(self, version: int | None = None) -> tuple[Version, ...]:
        """Return a version, the one in force unless told, after all those it is made from."""
        known = {one.version: one for one in self.versions}
        at = self.version if version is None else version
        found: list[Version] = []
        while at:
            absence = Message.of("catalogue.no_version", match_set=self.id, version=at)
            found.append(required(known.get(at), absence))
            at = known[at].parent
        return tuple(reversed(found))

    def edits(self, version: int | None = None) -> tuple[Edit, ...]:
        """Return what a version says of nodes, in order."""
        return tuple(edit for one in self.chain(version) for edit in one.edits)

    def mappings(self, version: int | None = None) -> tuple[MappingFile, ...]:
        """Return the mapping files that a version has read in."""
        return tuple(mapping for one in self.chain(version) for mapping in one.mappings)

    def results(self, version: int | None = None) -> int | None:
        """Return the id of the comparison that holds the results of a version."""
        chain = self.chain(version)
        return chain[-1].results_id if chain else self.comparison_id

    @property
    def undone(self) -> int | None:
        """The version that undo leads to; None if there is nothing to undo."""
        chain = self.chain()
        return chain[-1].parent if chain else None

    @property
    def redone(self) -> int | None:
        """The version that redo leads to; None if there is nothing to redo."""
        children = [one.version for one in self.versions if one.parent == self.version]
        return max(children, default=None)


def create_match_set(session: Session, comparison_id: int, name: str) -> int:
    """Begin a match set over a comparison; return its id.

    Raises:
        SettingsError: the name is empty, too long or taken, or the comparison is that of another match set.
    """
    get_comparison(session, comparison_id)
    origin = laid_over(session, comparison_id)
    if origin is not None:
        raise SettingsError(
            Message.of("catalogue.match_set.made_by_one", comparison=comparison_id, match_set=origin.id),
            hint=Message.of("catalogue.hint.lay_over", comparison=origin.comparison_id),
        )
    entry = MatchSetEntry(comparison_id=comparison_id, name=_free_name(session, comparison_id, name))
    return added(session, entry)


def rename_match_set(session: Session, match_set_id: int, name: str) -> MatchSet:
    """Give a match set another name.

    Raises:
        SettingsError: the name is empty, too long or taken.
    """
    entry = _entry(session, match_set_id)
    if name.strip() != entry.name:
        entry.name = _free_name(session, entry.comparison_id, name)
        session.flush()
    return _match_set(session, entry)


def delete_match_set(session: Session, match_set_id: int) -> None:
    """Remove a match set and all its results; `restore_match_set` takes it back."""
    _entry(session, match_set_id).deleted_at = Now()
    results = select(MatchSetVersionEntry.results_id).where(
        MatchSetVersionEntry.match_set_id == match_set_id, MatchSetVersionEntry.results_id.is_not(None)
    )
    session.execute(delete(ComparisonEntry).where(ComparisonEntry.id.in_(results)))
    session.flush()
    session.expire_all()  # the database has forgotten the results of its versions


def restore_match_set(session: Session, match_set_id: int) -> MatchSet:
    """Take back a match set that was deleted, as it was, and have its results made again."""
    entry = _entry(session, match_set_id, deleted=True)
    entry.deleted_at = None
    return _put_in_force(session, match_set_id, entry.version)


def list_match_sets(session: Session, comparison_id: int, *, deleted: bool = False) -> tuple[MatchSet, ...]:
    """List the match sets that are laid over a comparison, the oldest first.

    With `deleted`, those that can be restored instead of the others.
    """
    get_comparison(session, comparison_id)
    deleted_at = MatchSetEntry.deleted_at
    here = (
        MatchSetEntry.comparison_id == comparison_id,
        deleted_at.is_not(None) if deleted else deleted_at.is_(None),
    )
    found = session.scalars(select(MatchSetEntry).where(*here).order_by(MatchSetEntry.id)).all()
    return tuple(_match_set(session, entry) for entry in found)


def get_match_set(session: Session, match_set_id: int) -> MatchSet:
    """Look up a match set."""
    return _match_set(session, _entry(session, match_set_id))


def no_match_set(session: Session, comparison_id: int) -> MatchSet:
    """Return what stands for a comparison as it was found: a match set without a version."""
    base = get_comparison(session, comparison_id)
    return MatchSet(0, comparison_id, "", 0, base.created_at, ())


def laid_over(session: Session, comparison_id: int) -> MatchSet | None:
    """Return the match set whose results a comparison holds; None if it holds none."""
    found = session.scalar(
        select(MatchSetVersionEntry.match_set_id).where(MatchSetVersionEntry.results_id == comparison_id)
    )
    return None if found is None else get_match_set(session, found)


def add_edits(
    session: Session,
    match_set_id: int,
    seen: int,
    edits: tuple[Edit, ...],
    mappings: tuple[MappingFile, ...] = (),
) -> MatchSet:
    """Lay edits over the version in force, as one step that is undone as one, and have its results made.

    Args:
        session: a writing session.
        match_set_id: which set.
        seen: the version that whoever made the edits has seen.
        edits: in order; `match_preview.check_edits` says whether they can be applied.
        mappings: mapping files that are read in.

    Raises:
        ConflictError: another version is in force.
        SettingsError: the edits make no sense, there are none, or too many.
    """
    known = _locked(session, match_set_id, seen)
    if not edits and not mappings:
        raise SettingsError(Message.of("catalogue.match_set.no_change"))
    if len(known.edits()) + len(edits) > MOST_EDITS:
        raise SettingsError(Message.of("catalogue.match_set.many_edits", most=MOST_EDITS))
    version = 1 + max((one.version for one in known.versions), default=0)
    entry = MatchSetVersionEntry(
        match_set_id=match_set_id,
        version=version,
        parent=known.version,
        edits=tuple(map(checked, edits)),
        mappings=mappings,
    )
    session.add(entry)
    session.flush()
    return _put_in_force(session, match_set_id, version)


def undo(session: Session, match_set_id: int, seen: int) -> MatchSet:
    """Go back to the version from which the one in force was made.

    Raises:
        ConflictError: another version is in force than the one seen.
        SettingsError: there is nothing to undo.
    """
    version = _locked(session, match_set_id, seen).undone
    if version is None:
        raise SettingsError(Message.of("catalogue.match_set.nothing_to_undo"))
    return _put_in_force(session, match_set_id, version)


def redo(session: Session, match_set_id: int, seen: int) -> MatchSet:
    """Go on to the newest version that was made from the one in force.

    Raises:
        ConflictError: another version is in force than the one seen.
        SettingsError: there is nothing to redo.
    """
    version = _locked(session, match_set_id, seen).redone
    if version is None:
        raise SettingsError(Message.of("catalogue.match_set.nothing_to_redo"))
    return _put_in_force(session, match_set_id, version)


def judge_again(session: Session, comparison_id: int, rules: str | Judging | None = None) -> None:
    """Make the results of a comparison again, under other rules if given, and those of its match sets.

    Of the sets, the versions in force; others follow when they are put in force.

    Raises:
        SettingsError: there is no such rule set.
    """
    compare_again(session, comparison_id, rules)
    for known in list_match_sets(session, comparison_id):
        results = known.results()
        if results is not None and results != comparison_id:
            compare_again(session, results, judging_of(get_comparison(session, comparison_id).options))


def options_of(base: Options, known: MatchSet) -> Options:
    """Return the options of a comparison with the version in force of a match set laid over it."""
    matching = replace(
        base.matching,
        mappings=base.matching.mappings + known.mappings(),
        edits=base.matching.edits + known.edits(),
    )
    return replace(base, matching=matching)


def _entry(session: Session, match_set_id: int, *, deleted: bool = False) -> MatchSetEntry:
    entry = session.get(MatchSetEntry, match_set_id)
    if entry is None or (entry.deleted_at is not None) is not deleted:
        absence = "catalogue.no_deleted_match_set" if deleted else "catalogue.no_match_set"
        raise NotInCatalogueError(Message.of(absence, match_set=match_set_id))
    return entry


def _free_name(session: Session, comparison_id: int, name: str) -> str:
    """Return a name without blanks around it, if no other match set of the comparison has it."""
    name = name.strip()
    if not name or len(name) > LONGEST_NAME:
        raise SettingsError(Message.of("catalogue.match_set.bad_name", most=LONGEST_NAME))
    taken = session.scalar(
        select(MatchSetEntry).where(MatchSetEntry.comparison_id == comparison_id, MatchSetEntry.name == name)
    )
    if taken is None:
        return name
    if taken.deleted_at is not None:
        raise SettingsError(
            Message.of("catalogue.match_set.name_deleted", name=name),
            hint=Message.of("catalogue.hint.restore_or_rename", match_set=taken.id),
        )
    raise SettingsError(
        Message.of("catalogue.match_set.name_taken", name=name),
        hint=Message.of("catalogue.hint.choose_another_name"),
    )


def _match_set(session: Session, entry: MatchSetEntry) -> MatchSet:
    here = MatchSetVersionEntry.match_set_id == entry.id
    found = session.scalars(select(MatchSetVersionEntry).where(here).order_by(MatchSetVersionEntry.version))
    versions = tuple(record_of(Version, version) for version in found)
    return record_of(MatchSet, entry, versions=versions)


def _locked(session: Session, match_set_id: int, seen: int) -> MatchSet:
    """Look up a match set that nobody else can change until the session ends."""
    lock = select(MatchSetEntry).where(MatchSetEntry.id == match_set_id).with_for_update()
    session.scalar(lock.execution_options(populate_existing=True))
    known = get_match_set(session, match_set_id)
    if known.version != seen:
        raise ConflictError(_what_changed(known, seen), hint=Message.of("matching.hint.look_again"))
    return known


def _what_changed(known: MatchSet, seen: int) -> Message:
    """Say how the version in force came about since another one was seen."""
    said = Message.of("matching.version.moved", version=known.version, seen=seen)
    if seen not in {0, *(one.version for one in known.versions)}:
        return said
    now, then = known.chain(), known.chain(seen)
    changes = [
        Message.of("matching.version.undone", change=one.message())
        for one in reversed(then)
        if one not in now
    ]
    changes += [one.message() for one in now if one not in then]
    return Message.of("matching.version.moved_since", moved=said, changes=tuple(changes))


def _put_in_force(session: Session, match_set_id: int, version: int) -> MatchSet:
    """Move the pointer, and have the results made if there are none, or none of these dumps and rules."""
    entry = session.get_one(MatchSetEntry, match_set_id)
    entry.version = version
    session.flush()
    if version:
        _require_results(session, _match_set(session, entry))
    return _match_set(session, entry)


def _require_results(session: Session, known: MatchSet) -> None:
    base = get_comparison(session, known.comparison_id)
    results = known.results()
    if results is None:
        made = create_comparison(
            session,
            base.golden_path,
            base.target_path,
            options_of(base.options, known),
            priority=INTERACTIVE,
        )
        here = {"match_set_id": known.id, "version": known.version}
        session.get_one(MatchSetVersionEntry, here).results_id = made
        set_note(session, made, base.note)
        session.flush()
        return
    there = get_comparison(session, results)
    dumps = [
        (one.golden_dump_id, one.target_dump_id, one.golden_files, one.target_files) for one in (base, there)
    ]
    is_old = None not in dumps[1][:2] and dumps[0] != dumps[1]
    judging = judging_of(base.options)
    if is_old or judging_of(there.options) != judging:
        compare_again(session, results, judging)
