"""One suite for the sinks on database servers, and what is one server's own."""
