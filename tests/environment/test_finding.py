"""What a message may show of a user's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.finding import HIDDEN, safe, shown

SECRETS = (
    "hf_" + "a1B2" * 8,
    "AKIA" + "ABCDEFGH12345678",
    "sk-" + "a1b2c3d4e5f6",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9,
    "xoxb-" + "1234567890-abc",
    "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "-----BEGIN RSA PRIVATE KEY-----",
)


@pytest.mark.parametrize("secret", SECRETS)
@given(before=st.text(max_size=5), after=st.sampled_from(["", " ", "\n", ", and more", "'"]))
def test_a_credential_is_hidden_wherever_it_stands(secret: str, before: str, after: str) -> None:
    assert secret not in safe(f"{before} {secret}{after}")
    assert shown(f"{before} {secret}{after}") == HIDDEN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("redis://user:hunter2@cache:6379", f"redis://{HIDDEN}@cache:6379"),
        ("rediss://:hunter2@cache:6379", f"rediss://{HIDDEN}@cache:6379"),
        ("--api-key hunter2", f"--api-key {HIDDEN}"),
        ("--hf-token=hunter2 --seed 1", f"--hf-token={HIDDEN} --seed 1"),
        ("DB_PASSWORD=hunter2", f"DB_PASSWORD={HIDDEN}"),
        ("redis://cache:6379", "redis://cache:6379"),
        ("--max-num-batched-tokens 8192", "--max-num-batched-tokens 8192"),
        ("add token: {secret: hub, key: token}", "add token: {secret: hub, key: token}"),
    ],
)
def test_what_is_announced_as_a_secret_is_hidden(text: str, said: str) -> None:
    assert safe(text) == said
    assert shown(text) == said


@given(st.text())
def test_any_text_becomes_one_short_printable_line(text: str) -> None:
    line = safe(text, most=50)
    assert line.isprintable()
    assert len(line) < 100


@pytest.mark.parametrize(
    ("value", "key", "text"),
    [
        (None, "", ""),
        (0, "", "0"),
        (False, "", "false"),
        ("a\n  b", "", "a b"),
        ("a\x1b[31mb", "", "a\N{REPLACEMENT CHARACTER}[31mb"),
        ("x" * 10_000, "", "x" * 60 + "… (10,000 characters)"),
        ("hunter2", "password", HIDDEN),
        ("hunter2", "HF_TOKEN", HIDDEN),
        (8, "max_tokens", "8"),
        (8, "token", "8"),
        ("plain", "name", "plain"),
    ],
)
def test_values_as_messages_show_them(value: object, key: str, text: str) -> None:
    assert shown(value, key=key) == text
