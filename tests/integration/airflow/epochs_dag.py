"""A DAG of Airflow: an epoch of the pipeline ``clicks``, and an asset event for what it wrote.

Airflow reads it in an environment of its own; the test says in variables where things are.
"""

import os
from datetime import timedelta

from airflow.sdk import DAG, Asset

from laminar_dagster.airflow import LaminarEpochOperator

with DAG("shop", schedule=None) as dag:
    LaminarEpochOperator(
        task_id="epoch",
        project=os.environ["SHOP"],
        pipeline="clicks",
        laminar=os.environ["LAMINAR"],
        outlets=[Asset("clicks_per_minute")],
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
