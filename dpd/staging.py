"""Where the record of a copy of weights lies, for whoever writes it and whoever reads it."""

from typing import Final

FOLDER: Final = "dpd-staging"
"""Folder of the records in the model bucket. Beside the weights a pod would mount them."""


def manifest_key(prefix: str) -> str:
    """Key of the record of a folder."""
    return f"{FOLDER}/{prefix.strip('/')}/manifest.json"
