"""``dpd preflight`` from the file to its exit code: against clients that answer as a test wants, and against moto's server."""

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from moto.server import ThreadedMotoServer

from dpd.preflight.facts import Facts
from tests.aws_reads.account import ACCOUNT, EVERYTHING, KEY, P5, Account
from tests.checks.answers import good
from tests.checks.cases import ADOPTED_NETWORK
from tests.commands.support import Dpd, process
from tests.support import EXAMPLE, ROOT, edited, environment


def written(folder: Path, changes: dict[str, Any]) -> Path:
    file = folder / "environments" / "dev.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(edited(changes), sort_keys=False), encoding="utf-8")
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, EVERYTHING)


@pytest.fixture
def answers(file: Path) -> Path:
    return file.parents[1] / "preflight" / "dev.json"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    made = Account()
    monkeypatch.setattr(botocore.session, "get_session", lambda: made.calls.session)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return made


def facts(path: Path) -> Facts:
    return Facts.model_validate_json(path.read_bytes())


@pytest.mark.usefixtures("account")
def test_nothing_stops(dpd: Dpd, file: Path, answers: Path) -> None:
    said = dpd("preflight", file)
    assert (said.code, said.out.splitlines()[-1]) == (0, "1 file checked: 1 note.")
    assert "kubectl get secret api" in said.out
    assert f"Asked account {ACCOUNT}" in said.err
    assert facts(answers).environment == "dev"
    assert not list(answers.parent.glob(".*"))


def test_what_stops(dpd: Dpd, file: Path, answers: Path, account: Account) -> None:
    account.granted[P5] = 0
    said = dpd("preflight", file)
    assert said.code == 1
    assert "error PRE020" in said.out
    assert f"{file}:" in said.out
    # and it stops what reads the file afterwards, without an account
    account.refuse("GetCallerIdentity", "ExpiredToken")
    checked = dpd("check", file)
    assert checked.code == 1
    assert "error PRE020" in checked.out
    assert facts(answers).answers.quota[P5]


@pytest.mark.parametrize("code", ["AccessDenied", "ThrottlingException", "InternalFailure"])
def test_what_aws_does_not_answer(dpd: Dpd, file: Path, account: Account, code: str) -> None:
    account.refuse("DescribeKey", code)
    said = dpd("preflight", file)
    assert said.code == 3
    assert "warning PRE005" in said.out
    assert "kms:DescribeKey" in said.out


def test_a_finding_that_stops_stands_before_what_is_not_known(dpd: Dpd, file: Path, account: Account) -> None:
    account.granted[P5] = 0
    account.refuse("DescribeKey", "AccessDenied")
    assert dpd("preflight", file).code == 1


def test_what_no_call_tells_is_no_fault(dpd: Dpd, tmp_path: Path, account: Account) -> None:
    assert account
    public = written(tmp_path, {**EVERYTHING, "endpoints[0].image.repository": "public.ecr.aws/deep-learning-containers/vllm"})
    said = dpd("preflight", public)
    assert said.code == 0
    assert "info PRE005" in said.out


def test_another_account_is_said_and_not_asked(dpd: Dpd, file: Path, answers: Path, account: Account) -> None:
    account.caller["Account"] = "444455556666"
    said = dpd("preflight", file)
    assert said.code == 1
    assert "error PRE010" in said.out
    assert "of account 444455556666" in said.out
    assert not answers.exists()
    assert {operation for _, operation in account.calls.used} == {"GetCallerIdentity"}


def test_answers_that_are_there_stay_when_nobody_could_be_asked(dpd: Dpd, file: Path, answers: Path, account: Account) -> None:
    assert dpd("preflight", file).code == 0
    before = answers.read_bytes()
    account.refuse("GetCallerIdentity", "InvalidClientTokenId", 403)
    said = dpd("preflight", file)
    assert (said.code, "does not accept the credentials (InvalidClientTokenId)" in said.err) == (3, True)
    assert answers.read_bytes() == before


def test_nothing_is_half_written(dpd: Dpd, file: Path, answers: Path, account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dpd("preflight", file).code == 0
    before = answers.read_bytes()
    account.granted[P5] = 33

    def full(self: Path, _target: Path) -> Path:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "replace", full)
    said = dpd("preflight", file)
    assert (said.code, "No space left" in said.err) == (3, True)
    assert [path.name for path in answers.parent.iterdir()] == ["dev.json"]
    assert answers.read_bytes() == before


def test_the_report_for_machines(dpd: Dpd, file: Path, account: Account) -> None:
    account.granted[P5] = 0
    said = dpd("preflight", "--json", file)
    report = json.loads(said.out)
    assert (said.code, report["ok"], {one["id"] for one in report["findings"]}) == (1, False, {"PRE005", "PRE020"})


def test_a_file_that_cannot_be_read_is_not_asked_about(dpd: Dpd, tmp_path: Path, account: Account) -> None:
    file = tmp_path / "dev.yaml"
    file.write_text("version: 1\n", encoding="utf-8")
    said = dpd("preflight", file)
    assert (said.code, "CFG002" in said.err) == (1, True)
    assert not account.calls.used


def test_other_faults_of_the_file_are_counted(dpd: Dpd, tmp_path: Path, account: Account) -> None:
    assert account
    said = dpd("preflight", written(tmp_path, {**EVERYTHING, "endpoints[0].decode.tensor_parallel": 3}))
    assert "the file itself is wrong in 2 places: dpd check" in said.err
    assert "error PRE" not in said.out


@pytest.mark.parametrize("arguments", [("-c", "env=dev"), ("-e", "dev"), ("-c", "env=dev", "-e", "dev")])
def test_by_name(dpd: Dpd, file: Path, arguments: tuple[str, ...], account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    assert account
    monkeypatch.chdir(file.parents[1])
    assert dpd("preflight", *arguments).code == 0


@pytest.mark.parametrize(
    ("arguments", "code"), [(("-c", "env=other"), 1), (("-c", "dev"), 2), (("-c", "env=dev", "-c", "env=prod"), 2), (("--what",), 2)]
)
def test_wrong_calls(dpd: Dpd, file: Path, arguments: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parents[1])
    assert dpd("preflight", *arguments).code == code


class _Listener:
    """A server on loopback that only counts who knocks."""

    def __init__(self) -> None:
        self.knocks = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.knocks += 1
            connection.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[_Listener]:
    made = _Listener()
    yield made
    made.close()


def test_without_credentials_it_says_so_and_asks_nobody(file: Path, listener: _Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", listener.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", listener.url)
    done = process("preflight", file, AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null")
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"No AWS credentials" in done.stderr
    assert listener.knocks == 0


def test_a_profile_that_is_not_there(dpd: Dpd, file: Path) -> None:
    said = dpd("preflight", file, "--profile", "no-such-profile")
    assert (said.code, "no-such-profile" in said.err) == (3, True)


def test_aws_that_cannot_be_reached(dpd: Dpd, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    said = dpd("preflight", file)
    assert (said.code, "cannot be asked who the caller is" in said.err) == (3, True)


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST"))
    yield f"http://{host}:{port}"
    server.stop()


MOTO_ACCOUNT = "123456789012"


def client(url: str, service: str) -> Any:
    session = botocore.session.Session()
    session.set_credentials("testing", "testing")
    return session.create_client(service, region_name="us-east-2", endpoint_url=url)


@pytest.mark.parametrize("role", [None, f"arn:aws:iam::{MOTO_ACCOUNT}:role/reader"])
def test_an_account_that_has_what_moto_can_have(dpd: Dpd, tmp_path: Path, moto: str, role: str | None) -> None:
    ec2, s3, iam = (client(moto, service) for service in ("ec2", "s3", "iam"))
    key = client(moto, "kms").create_key(KeyUsage="ENCRYPT_DECRYPT")["KeyMetadata"]["Arn"]
    vpc = ec2.create_vpc(CidrBlock="10.192.0.0/16")["Vpc"]["VpcId"]
    ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock="10.1.0.0/24")
    zones = {one["ZoneId"]: one["ZoneName"] for one in ec2.describe_availability_zones()["AvailabilityZones"]}
    subnets = {
        zone: ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zones[zone])["Subnet"]["SubnetId"]
        for zone, cidr in {"use2-az1": "10.1.0.0/24", "use2-az2": "10.192.0.0/24", "use2-az3": "10.192.1.0/24"}.items()
    }
    group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
    itself = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=itself)
    ec2.authorize_security_group_egress(GroupId=group, IpPermissions=itself)
    s3.create_bucket(Bucket="our-weights", CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    for name, body in {"config.json": b"{}", "model.safetensors": b"too small"}.items():
        s3.put_object(Bucket="our-weights", Key=f"Llama-3.3-70B-Instruct/{name}", Body=body)
    client(moto, "ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="28", Type="String")
    client(moto, "secretsmanager").create_secret(Name="hub-token", SecretString="hf_of_the_test_alone")
    iam.create_service_linked_role(AWSServiceName="hyperpod.sagemaker.amazonaws.com")
    ecr = client(moto, "ecr")
    ecr.create_repository(repositoryName="vllm")
    rules = [{"direction": way, "protocol": "-1", "peer": group} for way in ("ingress", "egress")]
    cidrs = {"use2-az1": "10.1.0.0/24", "use2-az2": "10.192.0.0/24", "use2-az3": "10.192.1.0/24"}
    subnet = [{"id": subnets[zone], "availability_zone_id": zone, "cidr": cidr} for zone, cidr in cidrs.items()]
    content = edited(
        {
            **ADOPTED_NETWORK,
            "account": MOTO_ACCOUNT,
            "network.existing": {
                "vpc_id": vpc, "vpc_cidr": "10.192.0.0/16", "gpu_subnet": subnet[0], "control_plane_subnets": subnet[1:],
                "route_table_ids": ["rtb-0123456789abcdef0"], "s3_gateway_endpoint": "exists",
                "security_groups": [{"id": group, "rules": rules}],
            },
            "storage.encryption_key": {"existing": key},
            "storage.models.bucket": {"existing": "our-weights", "region": "us-east-2"},
            "storage.staging": {"token_secret": "hub-token"},
            "endpoints[0].image": {
                "repository": f"{MOTO_ACCOUNT}.dkr.ecr.us-east-2.amazonaws.com/vllm", "tag": "v1", "lmcache": "0.4.3", "vllm": "0.19.0",
                "nixl": "1.0.0",
            },
        }
    )  # fmt: skip
    file = tmp_path / "dev.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    said = dpd("preflight", file, *(("--role-arn", role) if role else ()))
    found = facts(tmp_path / "preflight" / "dev.json")
    answers = found.answers
    assert said.code == 1
    assert answers.caller[""]
    assert ("assumed-role/reader/dpd" in answers.caller[""].arn) is (role is not None)
    free = answers.subnet[subnets["use2-az1"]]
    assert (free and free.free, free and free.vpc_id) == (251, vpc)
    assert answers.secret == {"hub-token": type(answers.secret["hub-token"])(name="hub-token")}  # type: ignore[misc]
    stops = {line.split()[1] for line in said.out.splitlines() if line.startswith("  error ")}
    # 251 addresses are too few, 9 bytes are no model, the image was never pushed, the default egress is not in the file
    assert {"PRE027", "PRE033", "PRE043"} <= stops
    assert not stops & {"PRE010", "PRE011", "PRE022", "PRE023", "PRE026", "PRE028", "PRE030", "PRE034", "PRE036"}
    assert "the file has not: egress -1 0.0.0.0/0" in said.out
    # what moto has no call for is not known, and said
    assert {one.kind for one in found.unanswered} >= {"quota", "kubernetes", "add_on"}
    assert all(one.reason in {"refused", "unreachable"} for one in found.unanswered if one.kind != "permissions")
    text = found.text()
    assert "hf_of_the_test_alone" not in text + said.out + said.err


def test_the_example_says_how_to_ask(dpd: Dpd) -> None:
    said = dpd("check", EXAMPLE)
    assert "info PRE001" in said.out
    assert "dpd preflight -e example" in said.out
    assert KEY not in said.out


def test_a_synthesis_is_stopped_too(tmp_path: Path) -> None:
    file = written(tmp_path, {})
    place = tmp_path / "preflight" / "dev.json"
    place.parent.mkdir()
    place.write_text(good(environment(), {("bootstrap", "hnb659fds"): None}).text(), encoding="utf-8")
    settings = {**os.environ, "CDK_OUTDIR": str(tmp_path / "cdk.out")}
    command = [sys.executable, str(ROOT / "app.py")]
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "error PRE011" in done.stderr) == (1, True)
    assert str(file.relative_to(tmp_path)) in done.stderr
