"""Every kind of sink in one pipeline, under faults. No Spark: that is proved next door."""
