"""Epochs as tasks of a real Airflow."""
