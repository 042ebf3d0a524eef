"""Why the gate does not open: what may pass by itself, and what cannot."""


class Waiting(Exception):  # noqa: N818 - a state, not an error
    """Something that may pass by itself: look again later."""


class Denied(Waiting):
    """A missing permission. It passes by itself only while new permissions are still spreading."""


class Impossible(Exception):  # noqa: N818 - a state, not an error
    """Something that waiting cannot change."""
