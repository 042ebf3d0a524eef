"""What the user writes: one environment file, as types. One module per concept."""
