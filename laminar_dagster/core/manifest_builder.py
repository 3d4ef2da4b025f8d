"""Puts a manifest together, part by part."""

from __future__ import annotations

from msgspec import structs

from laminar_dagster.core.manifest import (
    CheckpointManifest,
    DeadLetterEntry,
    OperatorSnapshotEntry,
    RecordCounts,
    SinkEntry,
    SourceOffsetEntry,
)


class ManifestBuilder:
    """Collects the parts of a manifest. Each call returns a new builder."""

    def __init__(self, template: CheckpointManifest) -> None:
        """Start from a manifest without parts."""
        self._manifest = template

    def add_operator(self, entry: OperatorSnapshotEntry) -> ManifestBuilder:
        """With the state of one more operator."""
        return self._with(operators=(*self._manifest.operators, entry))

    def add_source(self, entry: SourceOffsetEntry) -> ManifestBuilder:
        """With the position of one more source."""
        return self._with(sources=(*self._manifest.sources, entry))

    def add_sink(self, entry: SinkEntry) -> ManifestBuilder:
        """With the output for one more sink."""
        return self._with(sinks=(*self._manifest.sinks, entry))

    def add_dead_letters(self, entry: DeadLetterEntry) -> ManifestBuilder:
        """With the bad records of one more source."""
        return self._with(dead_letters=(*self._manifest.dead_letters, entry))

    def counts(self, counts: RecordCounts) -> ManifestBuilder:
        """With the record accounting."""
        return self._with(counts=counts)

    def watermark(self, micros: int | None) -> ManifestBuilder:
        """With the pipeline's watermark."""
        return self._with(watermark=micros)

    def unaligned(self, is_unaligned: bool) -> ManifestBuilder:
        """Marked as taken in unaligned mode."""
        return self._with(is_unaligned=is_unaligned)

    def metadata(self, key: str, value: str) -> ManifestBuilder:
        """With one more free entry."""
        return self._with(metadata={**self._manifest.metadata, key: value})

    def build(self) -> CheckpointManifest:
        """The manifest, with its size added up, parts in the order of their names, validated.

        Raises:
            InvalidManifest: The parts contradict each other.
        """
        parts = self._manifest
        manifest = structs.replace(
            parts,
            operators=tuple(sorted(parts.operators, key=lambda entry: entry.operator_id)),
            sources=tuple(sorted(parts.sources, key=lambda entry: entry.source_id)),
            sinks=tuple(sorted(parts.sinks, key=lambda entry: entry.sink_id)),
            dead_letters=tuple(sorted(parts.dead_letters, key=lambda entry: entry.source_id)),
            total_size_bytes=sum(
                part.size_bytes for entry in parts.operators for part in entry.partitions
            ),
        )
        manifest.validate()
        return manifest

    def _with(self, **changes: object) -> ManifestBuilder:
        return ManifestBuilder(structs.replace(self._manifest, **changes))
