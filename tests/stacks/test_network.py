"""The network stack: what must be in its template, and what must not."""

from dataclasses import fields as fields_of
from typing import Any, Final

import pytest
from aws_cdk import Stage

from dpd.catalog.vpc_endpoints import interface_endpoints
from dpd.environment.environment import Environment
from dpd.environment.names import NETWORK, Names
from stacks.network import NetworkStack
from tests.stacks.support import Assembly, Template, synthesized

CLOSED: Final = {"network.egress": {"nat_gateways": 0, "interface_endpoints": True}}
TWO_NATS: Final = {"network.egress.nat_gateways": 2}
INSIDE: Final = {"network.gpu_subnet.cidr": "10.192.128.0/17"}
ADOPTED: Final = {
    "network": {
        "existing": {
            "vpc_id": "vpc-0123456789abcdef0",
            "vpc_cidr": "10.0.0.0/16",
            "gpu_subnet": {"id": "subnet-0123456789abcdef0", "availability_zone_id": "use2-az1", "cidr": "10.0.0.0/18"},
            "control_plane_subnets": [
                {"id": "subnet-0123456789abcdef1", "availability_zone_id": "use2-az2", "cidr": "10.0.64.0/24"},
                {"id": "subnet-0123456789abcdef2", "availability_zone_id": "use2-az3", "cidr": "10.0.65.0/24"},
            ],
            "route_table_ids": ["rtb-0123456789abcdef0", "rtb-0123456789abcdef1"],
            "s3_gateway_endpoint": "exists",
            "security_groups": [{"id": "sg-0123456789abcdef0", "rules": []}],
        }
    }
}
ADOPTED_WITHOUT_S3: Final = {"network": {"existing": {**ADOPTED["network"]["existing"], "s3_gateway_endpoint": "create"}}}
EVERY: Final = [
    pytest.param({}, id="one NAT gateway"),
    pytest.param(CLOSED, id="closed"),
    pytest.param(TWO_NATS, id="two NAT gateways"),
    pytest.param(INSIDE, id="GPU subnet inside the VPC's network"),
    pytest.param(ADOPTED, id="adopted"),
    pytest.param(ADOPTED_WITHOUT_S3, id="adopted, S3 endpoint made"),
]
MADE: Final = EVERY[:4]


_OBJECTS: Final = {"vpc", "control_plane_subnets"}


def build(stage: Stage, environment: Environment) -> None:
    names = Names.of(environment)
    NetworkStack(stage, NETWORK, stack_name=names.stack(NETWORK), network=environment.network, names=names, termination_protection=True)


def assembly(changes: dict[str, Any]) -> Assembly:
    return synthesized(build, changes)


def template(changes: dict[str, Any]) -> Template:
    return assembly(changes).templates[NETWORK]


def values(changes: dict[str, Any]) -> Any:
    """What the stack hands on, with references resolved."""
    found: list[Any] = []

    def keep(stage: Stage, environment: Environment) -> None:
        names = Names.of(environment)
        stack = NetworkStack(stage, NETWORK, stack_name=names.stack(NETWORK), network=environment.network, names=names)
        given = ((field.name, getattr(stack.values, field.name)) for field in fields_of(stack.values))
        fields = {name: list(value) if isinstance(value, tuple) else value for name, value in given if name not in _OBJECTS}
        fields["subnets"] = [subnet.subnet_id for subnet in stack.values.control_plane_subnets]
        fields["vpc"] = stack.values.vpc.vpc_id
        found.append(stack.resolve(fields))

    synthesized(keep, changes)
    return found[0]


# --- EFA ---


@pytest.mark.parametrize("changes", EVERY)
def test_efa_group_has_explicit_rules_to_itself_both_ways(changes: dict[str, Any]) -> None:
    made = template(changes)
    group = {"Fn::GetAtt": ["EfaSecurityGroup", "GroupId"]}
    out, into = made.one("AWS::EC2::SecurityGroupEgress"), made.one("AWS::EC2::SecurityGroupIngress")
    assert (out["GroupId"], out["DestinationSecurityGroupId"], out["IpProtocol"]) == (group, group, "-1")
    assert (into["GroupId"], into["SourceSecurityGroupId"], into["IpProtocol"]) == (group, group, "-1")
    efa = made.resources["EfaSecurityGroup"]["Properties"]
    assert [rule["CidrIp"] for rule in efa["SecurityGroupEgress"]] == ["0.0.0.0/0"]
    assert "SecurityGroupIngress" not in efa


# --- Subnets ---


@pytest.mark.parametrize("changes", MADE)
def test_subnets_are_placed_by_zone_id(changes: dict[str, Any]) -> None:
    for subnet in template(changes).properties("AWS::EC2::Subnet"):
        assert subnet["AvailabilityZoneId"] in {"use2-az1", "use2-az2", "use2-az3"}
        assert "AvailabilityZone" not in subnet
        assert subnet["MapPublicIpOnLaunch"] is False


@pytest.mark.parametrize("changes", EVERY)
def test_nothing_is_looked_up_and_nothing_is_a_placeholder(changes: dict[str, Any]) -> None:
    made = assembly(changes)
    assert made.missing == ()
    assert made.warnings == ()
    assert "dummy" not in made.templates[NETWORK].text
    assert "Fn::GetAZs" not in made.templates[NETWORK].text


def test_gpu_subnet_waits_for_its_secondary_network() -> None:
    made = template({})
    ((id_, secondary),) = made.of("AWS::EC2::VPCCidrBlock").items()
    assert secondary["Properties"]["CidrBlock"] == "10.1.0.0/16"
    assert made.resources["GpuSubnet"]["DependsOn"] == [id_]


def test_no_secondary_network_when_the_gpu_subnet_is_inside() -> None:
    made = template(INSIDE)
    assert made.of("AWS::EC2::VPCCidrBlock") == {}
    assert "DependsOn" not in made.resources["GpuSubnet"]


def test_load_balancers_find_their_subnets() -> None:
    made = template({})
    roles = {
        id_: {tag["Key"] for tag in subnet["Properties"]["Tags"] if tag["Key"].startswith("kubernetes.io/")}
        for id_, subnet in made.of("AWS::EC2::Subnet").items()
    }
    inside, outside = {"kubernetes.io/role/internal-elb"}, {"kubernetes.io/role/elb"}
    assert roles == {
        "GpuSubnet": inside,
        "ControlPlane0Subnet": inside,
        "ControlPlane1Subnet": inside,
        "Public0Subnet": outside,
        "Public1Subnet": outside,
    }
    assert "kubernetes.io/role/cni" not in made.text


# --- Ways out ---


@pytest.mark.parametrize("changes", MADE)
def test_every_private_route_table_leads_to_s3(changes: dict[str, Any]) -> None:
    made = template(changes)
    (gateway,) = (end for end in made.properties("AWS::EC2::VPCEndpoint") if end["VpcEndpointType"] == "Gateway")
    assert gateway["ServiceName"] == "com.amazonaws.us-east-2.s3"
    private = [
        link["RouteTableId"] for link in made.properties("AWS::EC2::SubnetRouteTableAssociation") if "Public" not in str(link["SubnetId"])
    ]
    assert len(private) == 3
    assert sorted(map(str, gateway["RouteTableIds"])) == sorted(map(str, private))


@pytest.mark.parametrize(("changes", "expected"), [({}, [0, 0, 0]), (TWO_NATS, [0, 0, 1])])
def test_private_subnets_go_out_through_nat(changes: dict[str, Any], expected: list[int]) -> None:
    made = template(changes)
    gateways = list(made.of("AWS::EC2::NatGateway"))
    routes = [route for route in made.properties("AWS::EC2::Route") if "NatGatewayId" in route]
    assert [gateways.index(route["NatGatewayId"]["Fn::GetAtt"][0]) for route in routes] == expected
    assert {route["DestinationCidrBlock"] for route in routes} == {"0.0.0.0/0"}
    assert len({route["SubnetId"]["Fn::GetAtt"][0] for route in made.properties("AWS::EC2::NatGateway")}) == len(gateways)


def test_nothing_uses_the_internet_gateway_before_it_is_attached() -> None:
    made = template({})
    (attached,) = made.of("AWS::EC2::VPCGatewayAttachment")
    (out,) = (id_ for id_, route in made.of("AWS::EC2::Route").items() if "GatewayId" in route["Properties"])
    assert made.resources[out]["DependsOn"] == [attached]
    assert [address["DependsOn"] for address in made.of("AWS::EC2::EIP").values()] == [[attached]]
    assert [gateway["DependsOn"] for gateway in made.of("AWS::EC2::NatGateway").values()] == [[out]]


def test_a_closed_network_has_no_way_to_the_internet() -> None:
    made = template(CLOSED)
    for type_ in ("NatGateway", "InternetGateway", "VPCGatewayAttachment", "EIP", "Route"):
        assert made.of(f"AWS::EC2::{type_}") == {}
    assert len(made.of("AWS::EC2::Subnet")) == 3


def test_a_closed_network_reaches_every_service_of_the_catalog() -> None:
    made = template(CLOSED)
    ends = [end for end in made.properties("AWS::EC2::VPCEndpoint") if end["VpcEndpointType"] == "Interface"]
    assert [end["ServiceName"] for end in ends] == [f"com.amazonaws.us-east-2.{end.service}" for end in interface_endpoints()]
    control = [{"Fn::GetAtt": [f"ControlPlane{index}Subnet", "SubnetId"]} for index in range(2)]
    for end in ends:
        assert end["PrivateDnsEnabled"] is True
        assert end["SubnetIds"] == control
        assert len(end["SecurityGroupIds"]) == 1
    group = made.resources[ends[0]["SecurityGroupIds"][0]["Fn::GetAtt"][0]]["Properties"]
    rules = [(rule["CidrIp"], rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for rule in group["SecurityGroupIngress"]]
    assert rules == [("10.192.0.0/16", "tcp", 443, 443), ("10.1.0.0/16", "tcp", 443, 443)]
    assert [rule["CidrIp"] for rule in group["SecurityGroupEgress"]] == ["255.255.255.255/32"]


def test_no_interface_endpoints_unless_asked() -> None:
    assert [end["VpcEndpointType"] for end in template({}).properties("AWS::EC2::VPCEndpoint")] == ["Gateway"]


# --- Flow logs ---


@pytest.mark.parametrize("changes", MADE)
def test_flow_logs_are_encrypted_bounded_and_kept(changes: dict[str, Any]) -> None:
    made = template(changes)
    log, group, key = made.one("AWS::EC2::FlowLog"), made.resources["FlowLogsGroup"], made.resources["FlowLogsKey"]
    assert (log["TrafficType"], log["ResourceType"], log["ResourceId"]) == ("ALL", "VPC", {"Fn::GetAtt": ["Vpc", "VpcId"]})
    assert log["LogGroupName"] == {"Ref": "FlowLogsGroup"}
    assert group["Properties"] == {"KmsKeyId": {"Fn::GetAtt": ["FlowLogsKey", "Arn"]}, "RetentionInDays": 90}
    for kept in (group, key):
        assert (kept["DeletionPolicy"], kept["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")
    assert key["Properties"]["EnableKeyRotation"] is True
    (logs,) = (entry for entry in key["Properties"]["KeyPolicy"]["Statement"] if entry["Sid"] == "LogGroups")
    assert logs["Principal"] == {"Service": "logs.us-east-2.amazonaws.com"}
    groups = "arn:aws:logs:us-east-2:111122223333:log-group:llama-dpd-dev-network-*"
    assert logs["Condition"] == {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}}
    (statement,) = made.one("AWS::IAM::Role")["Policies"][0]["PolicyDocument"]["Statement"]
    assert statement["Resource"] == {"Fn::GetAtt": ["FlowLogsGroup", "Arn"]}
    (trust,) = made.one("AWS::IAM::Role")["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Condition"]["StringEquals"] == {"aws:SourceAccount": "111122223333"}


def test_flow_logs_can_be_left_out() -> None:
    made = template({"network.flow_logs": False})
    assert made.of("AWS::EC2::FlowLog") == made.of("AWS::KMS::Key") == {}


# --- Adopted ---


def test_an_adopted_network_only_gains_the_efa_group() -> None:
    assert set(template(ADOPTED).resources) == {"EfaSecurityGroup", "EfaSecurityGroupFromItself", "EfaSecurityGroupToItself"}


def test_an_adopted_network_gains_the_s3_endpoint_when_asked() -> None:
    end = template(ADOPTED_WITHOUT_S3).one("AWS::EC2::VPCEndpoint")
    assert end["RouteTableIds"] == ["rtb-0123456789abcdef0", "rtb-0123456789abcdef1"]
    assert end["VpcId"] == "vpc-0123456789abcdef0"


def test_made_and_adopted_networks_hand_on_the_same_values() -> None:
    made, adopted = values({}), values(ADOPTED)
    assert made == {
        "vpc": {"Fn::GetAtt": ["Vpc", "VpcId"]},
        "vpc_id": {"Fn::GetAtt": ["Vpc", "VpcId"]},
        "vpc_cidr_blocks": ["10.192.0.0/16", "10.1.0.0/16"],
        "gpu_subnet_id": {"Fn::GetAtt": ["GpuSubnet", "SubnetId"]},
        "gpu_availability_zone_id": "use2-az1",
        "control_plane_subnet_ids": [{"Fn::GetAtt": [f"ControlPlane{index}Subnet", "SubnetId"]} for index in range(2)],
        "subnets": [{"Fn::GetAtt": [f"ControlPlane{index}Subnet", "SubnetId"]} for index in range(2)],
        "efa_security_group_id": {"Fn::GetAtt": ["EfaSecurityGroup", "GroupId"]},
        "node_security_group_ids": [{"Fn::GetAtt": ["EfaSecurityGroup", "GroupId"]}],
    }
    assert adopted == {
        "vpc": "vpc-0123456789abcdef0",
        "vpc_id": "vpc-0123456789abcdef0",
        "vpc_cidr_blocks": ["10.0.0.0/16"],
        "gpu_subnet_id": "subnet-0123456789abcdef0",
        "gpu_availability_zone_id": "use2-az1",
        "control_plane_subnet_ids": ["subnet-0123456789abcdef1", "subnet-0123456789abcdef2"],
        "subnets": ["subnet-0123456789abcdef1", "subnet-0123456789abcdef2"],
        "efa_security_group_id": {"Fn::GetAtt": ["EfaSecurityGroup", "GroupId"]},
        "node_security_group_ids": [{"Fn::GetAtt": ["EfaSecurityGroup", "GroupId"]}, "sg-0123456789abcdef0"],
    }


# --- The stack ---


def test_ids_that_the_rest_hangs_on_are_pinned() -> None:
    pinned = {"Vpc", "GpuSubnet", "ControlPlane0Subnet", "ControlPlane1Subnet", "EfaSecurityGroup", "FlowLogsGroup", "FlowLogsKey"}
    assert pinned <= set(template({}).resources)


def test_properties_by_name_are_set_last() -> None:
    assert template({"network.raw": {"InstanceTenancy": "dedicated"}}).one("AWS::EC2::VPC")["InstanceTenancy"] == "dedicated"


def test_the_stack_has_its_name_and_refuses_deletion() -> None:
    made = assembly({}).stacks[NETWORK]["properties"]
    assert (made["stackName"], made["terminationProtection"]) == ("llama-dpd-dev-network", True)


def test_outputs() -> None:
    assert set(template({}).content["Outputs"]) == {"VpcId", "GpuSubnetId", "EfaSecurityGroupId"}
