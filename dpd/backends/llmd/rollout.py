"""How the pods of a role are replaced."""

from dpd.environment.endpoint import Role


def rolling(role: Role) -> dict[str, int]:
    """Without spare GPUs an old pod must go before its successor can start; with them none has to be missing."""
    return {"maxSurge": role.max_surge, "maxUnavailable": 0 if role.max_surge else 1}
