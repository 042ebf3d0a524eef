"""Lists of flags, configuration keys, variables and metric names, read from the published wheels of the serving software."""
