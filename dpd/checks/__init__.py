"""Rules over an environment. One module per family; a rule is a function from environment to problems."""
