"""`dpd destroy` with the real client library and a command line that records what it is told."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from tests.commands.support import Dpd
from tests.lambdas.health_gate.aws_calls import Calls, Refuse
from tests.promotion.made import assembly, typed
from tests.promotion.test_teardown import ENDPOINT, TEMPLATES
from tests.support import ROOT

ORDER = ["gate", "serving", "addons", "hyperpod", "eks", "storage", "network"]
VPC, ENDPOINT_ID = "vpc-1", "vpce-own"


class Account:
    """Stacks that stand, what is tagged, and interfaces; each look at what must go finds one round less."""

    def __init__(self) -> None:
        self.standing = {f"llama-dpd-dev-{part}": False for part in ORDER}
        self.balancers, self.endpoints, self.interfaces = 0, 0, [dict[str, Any]()][:0]
        self.calls = Calls(
            {
                "GetCallerIdentity": lambda _: {"Account": "111122223333", "Arn": "arn:aws:iam::111122223333:user/a", "UserId": "U"},
                "DescribeStacks": self._stack,
                "GetResources": self._tagged,
                "DescribeEndpoint": self._endpoint,
                "ListStackResources": self._resources,
                "DescribeNetworkInterfaces": lambda _: {"NetworkInterfaces": self.interfaces},
            }
        )

    def _stack(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["StackName"]
        if name not in self.standing:
            raise Refuse("ValidationError", message=f"Stack with id {name} does not exist")
        return {
            "Stacks": [
                {"StackName": name, "CreationTime": 0, "StackStatus": "CREATE_COMPLETE", "EnableTerminationProtection": self.standing[name]}
            ]
        }

    def _tagged(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["TagFilters"] == [{"Key": "elbv2.k8s.aws/cluster", "Values": ["own-name"]}]
        found = [
            {"ResourceARN": f"arn:aws:elasticloadbalancing:us-east-2:111122223333:loadbalancer/app/{n}"} for n in range(self.balancers)
        ]
        self.balancers = max(0, self.balancers - 1)
        return {"ResourceTagMappingList": found}

    def _endpoint(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked == {"EndpointName": "llama-public"}
        raise Refuse("ValidationException", message=f'Could not find endpoint "{asked["EndpointName"]}".')

    def _resources(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["StackName"] == "llama-dpd-dev-network"
        kinds = {VPC: "AWS::EC2::VPC", ENDPOINT_ID: "AWS::EC2::VPCEndpoint"}
        common = {"LastUpdatedTimestamp": 0, "ResourceStatus": "CREATE_COMPLETE"}
        return {
            "StackResourceSummaries": [
                {"LogicalResourceId": id_, "PhysicalResourceId": id_, "ResourceType": kind, **common} for id_, kind in kinds.items()
            ]
        }


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    made = Account()
    monkeypatch.setattr(botocore.session, "get_session", lambda: made.calls.session)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return made


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return assembly(tmp_path_factory.mktemp("destroy") / "cdk.out", typed("dev", ENDPOINT), templates=TEMPLATES, protected=("network",))


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `cdk` in front of the real one. It writes its words down, and fails for the stack that a file beside it names."""
    folder = tmp_path / "bin"
    folder.mkdir()
    cdk = folder / "cdk"
    cdk.write_text(
        f'#!/bin/sh\ncd {tmp_path}\necho "$@" >> told\nfor last; do :; done\n[ ! -f fail ] || [ "$last" != "$(cat fail)" ]\n',
        encoding="utf-8",
    )
    cdk.chmod(0o755)
    monkeypatch.setattr("commands.destroy._ROOT", tmp_path)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "told"


def deleted(told: Path) -> list[str]:
    return [line.rsplit("/", 1)[1] for line in told.read_text(encoding="utf-8").splitlines()] if told.exists() else []


def test_a_dry_run_says_order_what_is_kept_and_what_protects_it_and_asks_nobody(dpd: Dpd, account: Account, release: Path) -> None:
    said = dpd("destroy", "-e", "dev", "--assembly", release, "--dry-run")
    assert said.code == 0
    places = [said.out.index(f"{number}. llama-dpd-dev-{part}") for number, part in enumerate(ORDER, 1)]
    assert places == sorted(places)
    assert "AWS::S3::Bucket weights of llama-dpd-dev-storage" in said.out
    assert (
        "update-termination-protection --no-enable-termination-protection --region us-east-2 --stack-name llama-dpd-dev-network" in said.out
    )
    assert account.calls.made == []


def test_stacks_go_one_by_one_in_order(dpd: Dpd, account: Account, release: Path, told: Path) -> None:
    account.balancers = 3
    said = dpd("destroy", "-e", "dev", "--assembly", release, "--confirm", "dev", "--profile", "")
    assert said.code == 0, said.err
    assert deleted(told) == ORDER
    assert f"destroy --app {release} --exclusively --force dev/gate" in told.read_text(encoding="utf-8")
    assert "Waiting for the operator to remove load balancers: 3 left." in said.out


def test_what_is_gone_already_is_passed_over(dpd: Dpd, account: Account, release: Path, told: Path) -> None:
    for part in ("gate", "serving", "addons"):
        del account.standing[f"llama-dpd-dev-{part}"]
    assert dpd("destroy", "-e", "dev", "--assembly", release, "--confirm", "dev").code == 0
    assert deleted(told) == ORDER[3:]
    account.standing.clear()
    assert "No stack of llama-dpd-dev stands." in dpd("destroy", "-e", "dev", "--assembly", release).out


def test_termination_protection_refuses_before_anything_goes(dpd: Dpd, account: Account, release: Path, told: Path) -> None:
    account.standing["llama-dpd-dev-network"] = True
    said = dpd("destroy", "-e", "dev", "--assembly", release, "--confirm", "dev")
    assert said.code == 1
    assert "Nothing was deleted" in said.err
    assert "termination_protection: false in environments/dev.yaml" in said.err
    assert deleted(told) == []


@pytest.mark.parametrize(("confirm", "code"), [(["--confirm", "prod"], 1), ([], 2)])
def test_the_name_must_be_given(dpd: Dpd, account: Account, release: Path, told: Path, confirm: list[str], code: int) -> None:
    assert account.standing
    assert dpd("destroy", "-e", "dev", "--assembly", release, *confirm).code == code
    assert deleted(told) == []


def test_load_balancers_that_stay_keep_the_add_ons(dpd: Dpd, account: Account, release: Path, told: Path) -> None:
    account.balancers = 1000
    said = dpd("destroy", "-e", "dev", "--assembly", release, "--confirm", "dev", "--wait-minutes", "1")
    assert said.code == 1
    assert "loadbalancer/app/0" in said.err
    assert deleted(told) == ["gate", "serving"]


def test_a_foreign_interface_keeps_the_network(dpd: Dpd, account: Account, release: Path, told: Path) -> None:
    own = [
        {"NetworkInterfaceId": "eni-1", "InterfaceType": "nat_gateway", "Description": "Interface for NAT Gateway nat-1"},
        {"NetworkInterfaceId": "eni-2", "InterfaceType": "vpc_endpoint", "Description": f"VPC Endpoint Interface {ENDPOINT_ID}"},
    ]
    account.interfaces = own
    assert dpd("destroy", "-e", "dev", "--assembly", release, "--confirm", "dev", "--wait-minutes", "1").code == 0
    told.unlink()
    account.interfaces = [*own, {"NetworkInterfaceId": "eni-3", "InterfaceType": "interface", "Description": "Created By Amazon FSx fs-1"}]
    said = dpd("destroy", "-e", "dev", "--assembly", release, "--confirm", "dev", "--wait-minutes", "1")
    assert said.code == 1
    assert "eni-3 (Created By Amazon FSx fs-1)" in said.err
    assert "eni-1" not in said.err
    assert deleted(told) == ORDER[:-1]


def test_a_stack_that_cannot_be_deleted_stops_the_rest(dpd: Dpd, account: Account, release: Path, told: Path) -> None:
    assert account.standing
    (told.parent / "fail").write_text("dev/hyperpod", encoding="utf-8")
    said = dpd("destroy", "-e", "dev", "--assembly", release, "--confirm", "dev")
    assert said.code == 1
    assert "dev/hyperpod ended with 1" in said.err
    assert deleted(told) == ORDER[:4]


def test_what_aws_refuses_deletes_nothing(dpd: Dpd, account: Account, release: Path, told: Path) -> None:
    def refuse(_: dict[str, Any]) -> dict[str, Any]:
        raise Refuse("AccessDenied", 403)

    account.calls.answers["DescribeStacks"] = refuse
    assert dpd("destroy", "-e", "dev", "--assembly", release, "--confirm", "dev").code == 3
    assert deleted(told) == []


def test_the_real_command_line_knows_the_words() -> None:
    cdk = shutil.which("cdk", path=f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert cdk is not None, "the CDK command line is installed by: make setup"
    said = subprocess.run([cdk, "destroy", "--help"], capture_output=True, text=True, check=True).stdout
    assert all(word in said for word in ("--app", "--exclusively", "--force", "--profile"))
