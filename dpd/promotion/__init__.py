"""From one environment to the next: what must be the same, what proves it, and in which order all of it is taken away again."""
