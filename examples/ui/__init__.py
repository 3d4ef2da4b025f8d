"""`make ui`: Dagster's own pages, on two pipelines that have run a few epochs."""
