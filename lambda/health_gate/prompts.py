"""Prompts of a wanted length, each one unlike any other so that no cache has seen it."""

import hashlib
from dataclasses import dataclass, field
from typing import Final

SENTENCE: Final = "The river carries sand and stones to the sea. "
_FACT: Final = "The number of the harbour is {number}. "
_QUESTION: Final = "Repeat the number of the harbour, then count upwards from it in words."


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and what the router will take it for."""

    text: str = field(repr=False)
    estimate: int

    @property
    def characters(self) -> int:
        """Its length."""
        return len(self.text)


def prompt(nonce: str, characters: int, characters_per_token: int) -> Prompt:
    """A prompt of at least ``characters`` characters.

    It begins with ``nonce``: prefix caches compare from the first token on. It holds a number early on and asks for
    it at the end, so that the answer depends on KV from the whole prompt.
    """
    number = int(hashlib.sha256(nonce.encode()).hexdigest(), 16) % 9000 + 1000
    head = f"{nonce}. {_FACT.format(number=number)}"
    missing = characters - len(head) - len(_QUESTION)
    repeats = max(0, -(-missing // len(SENTENCE)))
    text = head + SENTENCE * repeats + _QUESTION
    return Prompt(text, len(text) // characters_per_token)


def plain(nonce: str, characters_per_token: int) -> Prompt:
    """A prompt of one line."""
    text = f"{nonce}. Say hello."
    return Prompt(text, len(text) // characters_per_token)
