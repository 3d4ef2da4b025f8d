"""Recovery from damage: find what is left, prove what is whole, make again what is lost."""

from laminar_dagster.runtime.recovery.manager import RecoveryManager, RestorerFactory

__all__ = ["RecoveryManager", "RestorerFactory"]
