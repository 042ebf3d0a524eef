"""The ``dpd`` command line: one file per command, thin."""
