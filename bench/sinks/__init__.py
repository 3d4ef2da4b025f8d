"""What a transaction costs in each sink, beside the same rows written by a plain client."""
