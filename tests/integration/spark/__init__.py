"""Tests of the engine on a real Spark."""

import pytest

# Its asserts are told as those of a test.
pytest.register_assert_rewrite("tests.integration.spark.features")
