"""Texts of events and logs that have one meaning whatever the backend, and what to do about each.

Compared without regard to case. A backend's own come with the spec.
"""

from typing import Final

from health_gate.spec import Pattern

_GUIDE: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-ts-dpd.html"
_EFA: Final = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html"

EVENTS: Final = (
    Pattern(
        "Insufficient vpc.amazonaws.com/efa", "EFA devices belong to one pod alone. Ask per pod for its GPUs' share of the node's devices."
    ),
    Pattern(
        "Insufficient nvidia.com/gpu",
        "No node has the GPUs left. During a rolling update surge must be 0 on a full cluster, or add a node.",
    ),
    Pattern(
        "Insufficient hugepages-2Mi",
        "The node has no 2 MiB pages left. Reserve them, or take both the request and FI_EFA_USE_HUGE_PAGE away.",
    ),
    Pattern("untolerated taint", "Pods of this backend do not tolerate the nodes' taint. Remove the taint or add the toleration."),
    Pattern(
        "didn't match Pod's node affinity", "No node has the labels that the role selects. Compare the group's name with the node selector."
    ),
    Pattern(
        "MountVolume.SetUp failed",
        "The weights cannot be mounted: bucket and prefix must exist in this Region, the CSI driver's role must be able to list and get, "
        "and for Lustre the security group must allow ports 988 and 1018-1023.",
        _GUIDE,
    ),
    Pattern("PermanentRedirect", "The model bucket is in another Region. Copy the weights to a bucket of this one."),
    Pattern("toomanyrequests", "The image registry limits pulls. Mirror the image to a private ECR repository."),
    Pattern(
        "ErrImagePull", "The image cannot be pulled: check repository, digest, the node role's ECR rights and the way to the registry."
    ),
    Pattern(
        "ImagePullBackOff", "The image cannot be pulled: check repository, digest, the node role's ECR rights and the way to the registry."
    ),
    Pattern("exceeded quota", "A ResourceQuota of the namespace refuses the pods."),
    Pattern("no endpoints available for service", "A webhook has no pods behind it. Wait until its add-on is ACTIVE, then apply again."),
    Pattern("HuggingFaceDownloadFailed", "The download of the weights failed: check the token's secret and the way out to huggingface.co."),
)

LOGS: Final = (
    Pattern(
        "Unresponsive receiver",
        "EFA error 4126: the peer never answers. The security group must allow all traffic to and from itself, in both directions; "
        "0.0.0.0/0 does not count for EFA.",
        "https://github.com/gardener/gardener-extension-provider-aws/issues/1832",
    ),
    Pattern(
        "Error 4126", "The security group must allow all traffic to and from itself, in both directions; 0.0.0.0/0 does not count.", _EFA
    ),
    Pattern("EFA health check", "The nodes' EFA check failed: every attached security group needs the rule to and from itself.", _EFA),
    Pattern(
        "Attribute arch of node cpu",
        "NCCL, aws-ofi-nccl and the topology file of the image do not belong together. Use an image of the tested list.",
        "https://github.com/awslabs/awsome-distributed-ai/issues/519",
    ),
    Pattern(
        "no socket interface found",
        "NCCL_SOCKET_IFNAME excludes the pod's own interface. Exclude only lo, docker, veth and pod-id-link.",
        "https://github.com/aws/aws-ofi-nccl/issues/1063",
    ),
    Pattern(
        "EngineDeadError",
        "The engine died; see the log above it. A lost peer ends it too.",
    ),
    Pattern(
        "Failed to allocate memory object",
        "The buffer for incoming KV is too small: raise kv.buffer_gib or lower the longest prompt.",
        _GUIDE,
    ),
    Pattern("CUDA out of memory", "GPU memory is full: lower gpu_memory_utilization, max_model_len or the KV buffer."),
    Pattern("REMOTE_DISCONNECT", "The peer's KV metadata is stale. Restart decode and prefill together after either changes."),
    Pattern("No space left on device", "A disk or /dev/shm is full. Give shm more room or the node a larger volume."),
)


def named(text: str, patterns: tuple[Pattern, ...]) -> Pattern | None:
    """The first pattern whose text is in ``text``."""
    lowered = text.lower()
    return next((pattern for pattern in patterns if pattern.text.lower() in lowered), None)
