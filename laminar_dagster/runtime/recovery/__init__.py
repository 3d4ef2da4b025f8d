"""Recovery from damage: find what is left, verify what is intact, rebuild what is lost."""

from laminar_dagster.runtime.recovery.manager import RecoveryManager, RestorerFactory

__all__ = ["RecoveryManager", "RestorerFactory"]
