"""Plug-ins and profiles for the whole suite."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

from laminar_dagster.spark.class_archive import QUICK_COMPILER, VARIABLE

pytest_plugins = (
    "tests.services.watchdog",
    "tests.services.summary",
    "tests.services.durations",
    "tests.services.order",
    "tests.services.timeouts",
    "tests.services.tracing",
    "tests.services.torn_measurements",
    "tests.services.sharing",
    "tests.services.s3",
    "tests.services.postgres",
    "tests.services.mariadb",
    "tests.services.mysql",
    "tests.services.faulty_wire",
    "tests.services.kafka",
    "tests.services.schema_registry",
    "tests.services.spark",
    "tests.services.spark_connect",
    "tests.services.spark_cluster",
    "tests.services.browser",
    "tests.services.proofs",
    "tests.services.temporary_folders",
)

# A shell that starts the tests in the background has them ignore these, and children inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)

# Most Sparks of the tests run for seconds, also those that are not started by the package.
os.environ.setdefault(VARIABLE, QUICK_COMPILER)

# A deadline per example fails on a busy machine, not on a bug. A failure prints how to replay it.
settings.register_profile("dev", deadline=None, print_blob=True)
# CI says whether a change is right: two runs of one commit try the same examples, and agree.
settings.register_profile("ci", settings.get_profile("dev"), max_examples=200, derandomize=True)
# Others than CI's, and more of them: for nights.
settings.register_profile("explore", settings.get_profile("dev"), max_examples=2_000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "dev")
)
