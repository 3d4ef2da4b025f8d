"""``dg scaffold defs laminar_dagster.StreamPipelineComponent NAME``: a pipeline that runs."""

from pathlib import Path

import click
import dagster as dg
from dagster.components.component_scaffolding import scaffold_component

from laminar_dagster.config.example_project import pipeline_files
from laminar_dagster.core.errors import InvalidName
from laminar_dagster.core.ids import PipelineName


class PipelineScaffolder(dg.Scaffolder):
    """Writes the example pipeline beside its ``defs.yaml``, and input for it.

    What it reads and writes is in ``data/NAME`` of the project, so that several do not meet.
    """

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write the files; none that is there is replaced.

        Raises:
            click.ClickException: A file is there already, or the folder's name is no pipeline's.
        """
        if request.scaffold_format != "yaml":
            raise click.ClickException("a pipeline is described by files: leave --format out")
        try:
            name = PipelineName(request.target_path.name)
        except InvalidName as error:
            raise click.ClickException(f"{error}\n{error.advice()}") from None
        root = request.project_root or Path.cwd()
        pipeline, given = pipeline_files(name, f"data/{name}")
        files = {request.target_path / path: text for path, text in pipeline.items()}
        files |= {root / path: text for path, text in given.items()}
        for path in files:
            if path.exists():
                raise click.ClickException(f"{path} is there already")
        scaffold_component(request)
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
