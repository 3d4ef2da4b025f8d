"""The Kafka source beside its peers: one broker, one sitting, the same rows or no figure."""
