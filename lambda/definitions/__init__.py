"""A custom resource that puts custom resource definitions on a cluster: files of the internet that have the expected digest."""
