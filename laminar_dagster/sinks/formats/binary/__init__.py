"""Byte encodings that Avro and Protobuf share: varints, decimals, nulls and lists."""
