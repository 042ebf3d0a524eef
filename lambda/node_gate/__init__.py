"""A custom resource that waits until a HyperPod cluster has enough nodes on which pods can be scheduled."""
