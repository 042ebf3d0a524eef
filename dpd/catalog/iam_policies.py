"""IAM policies of parts that others specify: what the load balancer controller, KEDA or a HyperPod node must be allowed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dpd.catalog.tables import yaml_table

Values = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that allows actions.

    ``{name}`` in ``resources`` stands for a value that only the deployment knows. ``wildcard`` says why a resource with a
    wildcard cannot be narrowed; it is empty where there is none.
    """

    id: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Any] | None
    wildcard: str

    def filled(self, values: Values) -> dict[str, Any]:
        """The statement as IAM reads it. Raises ``KeyError`` for a name that ``values`` lacks."""
        body: dict[str, Any] = {"Sid": self.id, "Effect": "Allow", "Action": list(self.actions)}
        body["Resource"] = [resource for text in self.resources for resource in _filled(text, values)]
        if self.conditions:
            body["Condition"] = {test: {key: _value(value, values) for key, value in of.items()} for test, of in self.conditions.items()}
        return body


def _value(value: Any, values: Values) -> Any:
    """A value of a condition; a name in it is a value that only the deployment knows."""
    return _filled(value, values) if isinstance(value, str) and value.startswith("{") else value


def _filled(text: str, values: Values) -> Sequence[str]:
    if text.startswith("{") and text.endswith("}") and text.count("{") == 1:
        value = values[text[1:-1]]
        return [value] if isinstance(value, str) else value
    return [text.format_map(values)]


@dataclass(frozen=True, slots=True)
class Policy:
    """Statements that belong together, and where they are specified."""

    name: str
    statements: tuple[Statement, ...]
    sources: tuple[str, ...]

    def document(self, values: Values) -> dict[str, Any]:
        """The policy document as IAM reads it."""
        return {"Version": "2012-10-17", "Statement": [statement.filled(values) for statement in self.statements]}

    def wildcards(self, values: Values) -> Iterator[tuple[str, str]]:
        """Every resource with a wildcard, and why it cannot be narrowed."""
        for statement in self.statements:
            for resource in statement.filled(values)["Resource"]:
                if "*" in resource:
                    yield resource, statement.wildcard


def _statement(row: dict[str, Any]) -> Statement:
    return Statement(
        id=row["id"],
        actions=tuple(row["actions"]),
        resources=tuple(row["resources"]),
        conditions=row.get("conditions"),
        wildcard=row.get("wildcard", ""),
    )


@cache
def find(name: str) -> Policy:
    """Return the policy of that name. Raises ``KeyError`` for one that the catalog does not have."""
    row = yaml_table("iam_policies")[name]
    return Policy(name=name, statements=tuple(map(_statement, row["statements"])), sources=tuple(row["sources"]))


def names() -> tuple[str, ...]:
    """Names of all policies, in file order."""
    return tuple(yaml_table("iam_policies"))
