"""What listens on this machine for Spark, and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def ask(spark: SparkSession, *, knows: bool) -> str:
    """What Spark's driver says to another Spark, which knows the secret or not."""
    from py4j.protocol import Py4JJavaError

    context, jvm = spark.sparkContext, spark._jvm
    assert jvm is not None
    core: Any = jvm.org.apache.spark
    conf = core.SparkConf(False).set("spark.rpc.lookupTimeout", "20s")
    # Scala's values of what is not given.
    defaults = getattr(core, "SecurityManager$").__getattr__("MODULE$")
    rest = [getattr(defaults, f"$lessinit$greater$default${place}")() for place in (2, 3)]
    security = core.SecurityManager(conf, *rest)
    if knows:
        security = core.SparkEnv.get().securityManager()
        conf = core.SparkEnv.get().conf()
    stranger = core.rpc.RpcEnv.create("stranger", "127.0.0.1", 0, conf, security, True)
    port = int(context.getConf().get("spark.driver.port") or 0)
    try:
        address = core.rpc.RpcAddress("127.0.0.1", port)
        return str(stranger.setupEndpointRef(address, "MapOutputTracker").toString())
    except Py4JJavaError as error:
        return str(error)
    finally:
        stranger.shutdown()


def test_the_driver_talks_to_nobody_who_does_not_know_its_secret(spark: SparkSession) -> None:
    assert ask(spark, knows=True).startswith("NettyRpcEndpointRef")
    refusal = ask(spark, knows=False)
    assert "Exception" in refusal
    assert "NettyRpcEndpointRef(" not in refusal


def test_everything_of_spark_listens_on_loopback(spark: SparkSession) -> None:
    conf = dict(spark.sparkContext.getConf().getAll())
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"]) == ("127.0.0.1",) * 2
