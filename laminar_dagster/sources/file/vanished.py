"""Files that were read and are gone: which of them are allowed, and what was lost with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from laminar_dagster.core.errors import RetentionExpired, SourceReplaced
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import FilePosition, Gap, SourceRange
from laminar_dagster.sources.file.directory import Directory
from laminar_dagster.sources.file.fingerprints import Fingerprint, head_of
from laminar_dagster.sources.file.options import FileOptions


def gaps_of(
    source_id: SourceId,
    options: FileOptions,
    gone: Sequence[str],
    known: Mapping[str, int],
    pinned: Mapping[str, Fingerprint],
) -> tuple[Gap, ...]:
    """Check that vanished files are allowed, and return the gaps of unread data they leave.

    Args:
        source_id: The source's name, for errors.
        options: Which vanished files are allowed.
        gone: The vanished files.
        known: The offset up to which each file was read.
        pinned: The last plan's fingerprints.

    Raises:
        RetentionExpired: A vanished file is not allowed.
    """
    gaps: list[Gap] = []
    for path in gone:
        pin, offset = pinned.get(path), known[path]
        finished = pin is None or pin.was_read_to_its_end
        if finished and options.on_vanished == "forget":
            continue
        if options.on_gap != "earliest":
            raise vanished(source_id, path, offset, finished=finished)
        lost = range_of(path, offset, max(offset, pin.available if pin else 0))
        gaps.append(Gap(lost=lost, reason=f"{path} vanished after byte {offset} was read"))
    return tuple(gaps)


def refuse_renamed(
    directory: Directory,
    source_id: SourceId,
    pinned: Mapping[str, Fingerprint],
    gone: Sequence[str],
    new: Sequence[str],
) -> None:
    """Refuse new files that are renamed ones: their records would be read twice.

    Raises:
        SourceReplaced: A new file starts with the content of a vanished one.
    """
    pins = {path: pinned[path] for path in gone if path in pinned}
    by_head: dict[tuple[int, str], list[str]] = {}
    for path, pin in pins.items():
        if pin.end:
            by_head.setdefault((pin.head_bytes, pin.head), []).append(path)
    lengths = sorted({length for length, _ in by_head})
    for path in new:
        try:
            with directory.open(path) as file:
                for length in lengths:
                    if length > file.size:
                        break
                    for old in by_head.get((length, head_of(file, length)), ()):
                        if pins[old].matches(file):
                            found = f"the same content under the name {path}"
                            raise SourceReplaced(source_id, old, found)
        except FileNotFoundError:
            continue


def vanished(
    source_id: SourceId, path: str, offset: int, *, finished: bool = False
) -> RetentionExpired:
    """The error for a file that is gone, with what is lost from an offset on."""
    why = "nothing: the file is gone, or no longer matches `pattern`"
    if finished:
        why += "; it was read to its end, and `on_vanished` = 'forget' would allow that"
    return RetentionExpired(source_id, f"{path} from byte {offset} on", why)


def range_of(path: str, start: int, end: int) -> SourceRange:
    """The range of a file from byte ``start`` to byte ``end``."""
    return SourceRange(
        start=FilePosition(path=path, byte_offset=start),
        end=FilePosition(path=path, byte_offset=end),
    )
