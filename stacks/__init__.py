"""CDK: one deploy unit a file, reusable pieces in `constructs`."""
