"""What is taken for a secret, and what is not."""

from __future__ import annotations

import pytest

from isocompute.credentials import hide, secret_name, secrets_in, without_secrets

HEX40 = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "name",
    ["api_key", "OPENAI_API_KEY", "apikey", "private_key", "AWS_SECRET_ACCESS_KEY", "secret",
     "db_password", "passwd", "passphrase", "authorization", "auth", "hf_token", "token",
     "credentials", "cookie"],
)  # fmt: skip
def test_names_of_secrets(name):
    assert secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["max_new_tokens", "tokens", "eos_token", "pad_token", "author", "prompt_key", "tokenizer",
     "token_mean", "keys", "passes", "authors"],
)  # fmt: skip
def test_names_that_are_none(name):
    assert not secret_name(name)


VALUES = [
    "sk-" + 8 * "a1b2", "hf_abcdefghijklmnopqrst", "ghp_abcdefghijklmnop1234",
    "github_pat_11ABCDEFG0abcdefghijkl_mnop", "glpat-abcdefghij0123456789",
    "gldt-abcdefghij0123456789", f"wandb login {HEX40}", "wandb_v1_abcdefghijklmnopqrstuvwx",
    f"local-{HEX40}", "AKIAABCDEFGHIJKLMNOP", "ASIAABCDEFGHIJKLMNOP",
    "xoxb-1234567890-abc", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123",
    "postgres://me:hunter22@host/db", "https://:token123@github.com/a/b",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----", "Authorization: Bearer abcdefghijklmnopqrstuvwx",
    "--password=hunter22", "--hf-token hunter22", "--db-password hunter22",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_values_are_found_hidden_and_kept_from_checkers(value):
    assert [named for _, named in secrets_in({"x": {"y": ["plain", value]}})] == [False]
    assert "(hidden)" in hide(f"it says {value} here")
    assert "hunter22" not in hide(value)
    assert without_secrets({"A": value, "B": "plain"}) == {"B": "plain"}


@pytest.mark.parametrize(
    "value",
    [HEX40, "https://github.com/a/b", "ssh://git@host/a", "token-mean", "What is sk- 3?",
     "models--org--name", "a basic question about a bearer", "--eos-token something",
     "--token --verbose", "1e-6", "somewhere/auth/x.py"],
)  # fmt: skip
def test_values_that_are_none(value):
    assert list(secrets_in({"x": value})) == []
    assert hide(value) == value
    assert without_secrets({"A": value}) == {"A": value}


def test_places_of_secrets():
    content = {"a": {"token": ["x", "y"]}, "password": 1234, "secret": None, "auth": False,
               "wandb": {"login": HEX40}, "api_key": ""}  # fmt: skip
    assert list(secrets_in(content)) == [
        ("a.token", True), ("a.token", True), ("password", True), ("wandb.login", False)
    ]  # fmt: skip


def test_the_environment_of_foreign_code():
    given = {"PATH": "/bin", "STRIPE_KEY": "x", "SSH_AUTH_SOCK": "/tmp/s", "HF_TOKEN": "x",
             "WANDB_API": HEX40, "HF_HOME": "/models"}  # fmt: skip
    assert without_secrets(given) == {"PATH": "/bin", "HF_HOME": "/models"}
    assert "HF_TOKEN" in without_secrets(given, ["HF_TOKEN"])
