"""Dagster as a user meets it: a real `dagster dev`, its GraphQL, and its pages in a browser."""
