"""Schema parsing that the readers and writers of an encoding share: Avro and Protobuf."""
