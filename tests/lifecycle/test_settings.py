"""What the stage writes into settings.conf is what the script understands."""

from pathlib import Path

import pytest

from stacks.stage import _node_settings
from tests.lifecycle.node import Node
from tests.support import environment


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "Lustre over EFA is off"),
        ({"storage.lustre": None}, "Lustre over EFA is off"),
        ({"storage.lustre.efa": True}, "no EFA device: this node reads Lustre over TCP"),
    ],
)
def test_the_environment_switches_lustre_over_efa(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    node = Node.make(tmp_path)
    node.settings(_node_settings(environment(changes).storage))
    assert node.create().returncode == 0
    assert said in node.log
