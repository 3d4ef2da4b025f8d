"""Encoders of rows as messages: from Arrow to JSON, Avro, Protobuf or raw bytes."""
