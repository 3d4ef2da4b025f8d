"""A pipeline as a component of ``dg``: a ``defs.yaml`` beside its ``pipeline.yml``."""

from pathlib import Path

import dagster as dg

from laminar_dagster.config.pipeline import find_pipelines
from laminar_dagster.orchestration.pipeline_defs import build_pipeline_defs
from laminar_dagster.orchestration.scaffold import PipelineScaffolder
from laminar_dagster.orchestration.translator import LaminarTranslator
from laminar_dagster.runtime.loading import load_pipelines


@dg.scaffold_with(PipelineScaffolder)
class StreamPipelineComponent(dg.Component, dg.Model, dg.Resolvable):
    """A stream whose epochs are runs: sources, views, a checkpoint for every epoch, sinks.

    The pipeline itself is described by the files of a folder: ``pipeline.yml``, SQL for sources,
    views and sinks, contracts.

    Attributes:
        folder: The pipeline's folder, from that of the ``defs.yaml`` on.
        project: Where relative paths in the pipeline's files begin; the project's folder if empty.
    """

    folder: str = "."
    project: str = ""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the pipeline.

        Raises:
            InvalidPipeline: Lists every mistake.
        """
        folder = (context.path / self.folder).resolve()
        project = Path(context.project_root, self.project).resolve()
        (loaded,) = load_pipelines([folder], project, builds_contracts=False)
        beside = (each.parent for each in context.defs_module_path.rglob("pipeline.yml"))
        return build_pipeline_defs(
            loaded.model,
            project,
            translator=self.translator(),
            others=dict.fromkeys([*find_pipelines(project), *beside]),
        )

    def translator(self) -> LaminarTranslator:
        """What names and describes its assets; a subclass may give one of its own."""
        return LaminarTranslator()
