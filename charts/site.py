"""Where a chart finds what it needs to know of its environment, and the placeholders that a deployment fills in."""

from dpd.backends.site import LUSTRE_DNS_NAME, LUSTRE_FILE_SYSTEM_ID, LUSTRE_MOUNT_NAME, PLACEHOLDERS, LustreSite, Site

__all__ = ["LUSTRE_DNS_NAME", "LUSTRE_FILE_SYSTEM_ID", "LUSTRE_MOUNT_NAME", "PLACEHOLDERS", "LustreSite", "Site"]
