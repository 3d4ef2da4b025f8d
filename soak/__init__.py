"""`make soak`: Kafka to state to PostgreSQL, Kafka and Delta for minutes, with random faults.

A real broker, a producer, and the pipeline as `laminar run`. What happens when follows from a seed.
At the end every sink is compared with what DuckDB makes of the topic.
"""
