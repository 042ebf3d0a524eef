"""Rules about what must lie in the account: buckets, weights, keys, file systems, secrets."""

from collections.abc import Iterator
from typing import Final

from dpd.catalog import preflight
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.environment.names import STORAGE, Names
from dpd.finding import Level
from dpd.preflight.questions import folder_subject, model_bucket
from dpd.preflight.view import answers_about, each, found
from dpd.sizing.memory import GIB

_BUCKETS: Final = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"
_WEIGHTS: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-deploy-ftm.html"
_KEYS: Final = "https://docs.aws.amazon.com/kms/latest/developerguide/key-state.html"
_LUSTRE: Final = "https://docs.aws.amazon.com/fsx/latest/LustreGuide/file-system-lifecycle-states.html"
_SECRETS: Final = "https://docs.aws.amazon.com/secretsmanager/latest/userguide/intro.html"


@check(
    "PRE030",
    "Adopted buckets are what the file says",
    why="A mount of a bucket that is not there, or in another Region, fails on nodes that are billed; with another key than the file "
    "names, pods are denied the weights.",
    link=_BUCKETS,
)
def buckets(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare existence, Region and key of each adopted bucket with the file."""
    adopted = environment.storage.adopted_buckets
    for question, answer in each(environment, answers_about(environment, context.preflight).bucket, "bucket"):
        if (written := adopted.get(question.path)) is None:
            continue
        if answer is None:
            yield Problem(f"{question.path}.existing", "there is no such bucket", "correct the name, or write create", question.subject)
            continue
        if answer.region != written.region:
            yield Problem(f"{question.path}.region", "the bucket is elsewhere", "adopt another bucket", written.region, answer.region)
        if answer.key_arn != (written.kms_key_arn or ""):
            said = "the bucket is encrypted with a key" if answer.key_arn else "the bucket is not encrypted with a key of yours"
            fix = "write what is there" if answer.key_arn else "leave kms_key_arn out"
            yield Problem(f"{question.path}.kms_key_arn", said, fix, written.kms_key_arn, answer.key_arn)


@check(
    "PRE031",
    "No bucket of an earlier deployment is in the way",
    why="Buckets outlive their stack. A new deployment wants to make one of the same name, S3 refuses, and the storage stack fails.",
    link="https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/resource-import.html",
)
def left_over(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look for buckets to make that are there although the stack is not."""
    answers, stack = answers_about(environment, context.preflight), Names.of(environment).stack(STORAGE)
    if stack not in answers.stack or answers.stack[stack] is not None:
        return
    for question, _bucket in found(environment, answers.bucket, "bucket"):
        if question.path not in environment.storage.adopted_buckets:
            fix = "adopt it with existing, import it into the stack, or empty and delete it"
            yield Problem(question.path, f"{question.subject} is there, and its stack {stack} is not", fix, question.subject)


@check(
    "PRE032",
    "The weights lie where the endpoint reads them",
    why="A pod finds an empty folder, or one without config.json, after its node was paid for, and restarts for ever.",
    link=_WEIGHTS,
)
def weights(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look at what lies below each prefix."""
    answers, bucket = answers_about(environment, context.preflight), model_bucket(environment)
    staged = f"bring them with: dpd stage-model -e {environment.name} --endpoint"
    for path, name, subject, _expected in _folders(environment):
        if subject not in answers.folder:
            continue
        folder = answers.folder[subject]
        if folder is None or not folder.objects:
            # The bucket of a first deployment comes with it; weights can only follow.
            waits = answers.bucket.get(bucket) is None and bucket in answers.bucket
            said = f"nothing lies in s3://{subject}{'; the bucket is yet to be made' if waits else ''}"
            fix = f"deploy storage alone first, then {staged} {name}" if waits else f"{staged} {name}"
            yield Problem(path, said, fix, subject, level=Level.WARNING if waits else None)
            continue
        for wrong, said in (
            (folder.incomplete, "dpd stage-model has not ended"),
            (not folder.config, "there is no config.json"),
            (not folder.weight_files, "there are no safetensors files"),
            (bool(folder.index_missing), f"the index names files that are not there: {', '.join(folder.index_missing[:3])}"),
        ):
            if wrong:
                yield Problem(path, f"s3://{subject}: {said}", f"{staged} {name}", subject)


@check(
    "PRE033",
    "The weights are as large as the model's",
    why="A copy that broke off, or another model than the arithmetic is about, shows in the size before it shows in a crash.",
    link=_WEIGHTS,
)
def sizes(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare the bytes of the safetensors files with the model's."""
    least, most = preflight.weights_share()
    answers = answers_about(environment, context.preflight)
    for path, name, subject, expected in _folders(environment):
        folder = answers.folder.get(subject)
        if folder is None or not folder.weight_files or least <= folder.weights_bytes / expected <= most:
            continue
        small = folder.weights_bytes < expected
        said = f"{folder.weights_bytes / GIB:,.1f} GiB of safetensors, the model has {expected / GIB:,.1f} GiB"
        fix = f"copy it again: dpd stage-model -e {environment.name} --endpoint {name}" if small else "name the folder of one model alone"
        yield Problem(
            path, said, fix, subject, f"{expected * least / GIB:,.1f} to {expected * most / GIB:,.1f} GiB", None if small else Level.WARNING
        )


def _folders(environment: Environment) -> Iterator[tuple[str, str, str, float]]:
    """Path, endpoint, folder and expected bytes of every endpoint that reads from the model bucket."""
    for index, endpoint in enumerate(environment.endpoints):
        if source := endpoint.model.source.s3:
            path = f"endpoints[{index}].model.source.s3.prefix"
            yield path, endpoint.name, folder_subject(environment, source.prefix), endpoint.model.shape.weight_bytes


@check(
    "PRE034",
    "Keys can be used",
    why="With a key that is disabled, or about to be deleted, neither logs nor buckets nor Kubernetes secrets can be written.",
    link=_KEYS,
)
def keys(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look at state and use of each key."""
    for question, answer in each(environment, answers_about(environment, context.preflight).key, "key"):
        if answer is None:
            yield Problem(question.path, "there is no such key", "correct the ARN", question.subject)
        elif answer.state != "Enabled":
            yield Problem(question.path, f"the key is {answer.state}", "enable it, or name another", question.subject, "Enabled")
        elif (answer.usage, answer.spec) != ("ENCRYPT_DECRYPT", "SYMMETRIC_DEFAULT"):
            fix = "name a symmetric key for encryption"
            yield Problem(question.path, f"the key is {answer.spec}, for {answer.usage}", fix, question.subject, "SYMMETRIC_DEFAULT")


@check(
    "PRE035",
    "The adopted Lustre file system is what the file says",
    why="Mount name and DNS name go into volumes as they stand in the file; with others every mount times out.",
    link=_LUSTRE,
)
def file_systems(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare state, names and capacity with the file."""
    lustre = environment.storage.lustre
    if lustre is None or (written := lustre.existing) is None:
        return
    place = "storage.lustre.existing"
    for question, answer in each(environment, answers_about(environment, context.preflight).file_system, "file_system"):
        if answer is None:
            yield Problem(question.path, "there is no such file system", "correct the id", question.subject)
            continue
        if answer.lifecycle not in {"AVAILABLE", "UPDATING"}:
            yield Problem(
                question.path, f"the file system is {answer.lifecycle}", "repair it, or adopt another", question.subject, "AVAILABLE"
            )
        for field, said, real in (
            ("dns_name", written.dns_name, answer.dns_name),
            ("mount_name", written.mount_name, answer.mount_name),
            ("capacity_gib", written.capacity_gib, answer.capacity_gib),
        ):
            if said != real:
                yield Problem(f"{place}.{field}", f"the file system has {real}", "write what is there", said, str(real))


@check(
    "PRE036",
    "Secrets are there",
    why="A gated model is answered with 401 after the work has begun. Only names are looked at, never values.",
    link=_SECRETS,
)
def secrets(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look for each secret by its name."""
    for question, answer in each(environment, answers_about(environment, context.preflight).secret, "secret"):
        if answer is None or answer.deleted:
            said = "the secret is about to be deleted" if answer else f"there is no such secret in {environment.region}"
            fix = (
                f"restore it: aws secretsmanager restore-secret --secret-id {question.subject}"
                if answer
                else "make it, or correct the name"
            )
            yield Problem(question.path, said, fix, question.subject)
