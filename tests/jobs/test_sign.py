"""Signed builds: only the signer's key over these very files opens the gate."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calib.cli.app import run
from calib.core.attestation import (
    PAYLOAD_TYPE,
    Envelope,
    Signature,
    parse_envelope,
    pre_authentication_encoding,
    statement_subjects,
)
from calib.edges.progress import SilentProgress
from calib.edges.signing import is_signed_by, load_private_key, load_public_key, sign_payload
from calib.errors import FormatError, UsageError
from calib.jobs.sign import sign
from calib.jobs.verify import Verification, VerifyRequest, verify
from tests.smallbuild import make_build

cryptography = pytest.importorskip("cryptography", reason="needs the extra sign")


def write_keys(folder: Path, name: str = "release") -> tuple[Path, Path]:
    """A key pair as openssl would write it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    for name, seed in (("one", 5), ("other", 6)):
        (folder / name).mkdir()
        make_build(folder / name, calibrators=("minmax",), seed=seed)
    return folder


@pytest.fixture
def signed(built: Path, tmp_path: Path) -> Path:
    """A signed build ``out`` with keys ``release.pem`` and ``release.pub.pem``; another build and key beside it."""
    shutil.copytree(built / "one", tmp_path / "one")
    shutil.copytree(built / "other", tmp_path / "one" / "other")
    place = tmp_path / "one"
    write_keys(place)
    write_keys(place, "stranger")
    (place / "out" / "evaluation").mkdir()
    (place / "out" / "evaluation" / "evaluation.json").write_text('{"schema": 1, "data": {}, "models": []}')
    sign(place / "out", place / "release.pem")
    return place


def check(place: Path, key: str | None = "release.pub.pem") -> Verification:
    request = VerifyRequest(place / "out", place / "net.onnx", key=None if key is None else place / key)
    return verify(request, SilentProgress())


def verdict(result: Verification, name: str = "signature") -> str:
    return next(f"{item.status}: {item.detail}" for item in result.checks if item.name == name)


def envelope_of(place: Path) -> dict[str, Any]:
    return json.loads((place / "out/provenance.dsse.json").read_text())


def put_envelope(place: Path, document: Any) -> None:
    (place / "out/provenance.dsse.json").write_text(json.dumps(document))


def edit_payload(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = envelope_of(place)
    statement = json.loads(base64.b64decode(document["payload"]))
    change(statement)
    document["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    put_envelope(place, document)


def forge_signature(place: Path) -> None:
    document = envelope_of(place)
    document["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    put_envelope(place, document)


def sign_other_statement(place: Path) -> None:
    """The right key, over a statement of fewer files."""
    statement = json.loads(base64.b64decode(envelope_of(place)["payload"]))
    statement["subject"] = [item for item in statement["subject"] if item["name"] == "provenance.json"]
    payload = json.dumps(statement).encode()
    put_envelope(place, sign_payload(payload, PAYLOAD_TYPE, load_private_key(place / "release.pem")).document())


def sign_other_type(place: Path) -> None:
    payload = base64.b64decode(envelope_of(place)["payload"])
    put_envelope(place, sign_payload(payload, "text/plain", load_private_key(place / "release.pem")).document())


def replace_build(place: Path) -> None:
    """A sound build of the other network, with its network, under the old signature."""
    envelope = (place / "out/provenance.dsse.json").read_bytes()
    shutil.rmtree(place / "out")
    shutil.copytree(place / "other/out", place / "out")
    shutil.copy(place / "other/net.onnx", place / "net.onnx")
    (place / "out/provenance.dsse.json").write_bytes(envelope)


def edit_provenance(place: Path) -> None:
    path = place / "out/provenance.json"
    path.write_text(path.read_text().replace('"cores"', '"Cores"'))


TAMPERS: dict[str, Callable[[Path], Any]] = {
    "not signed": lambda p: (p / "out/provenance.dsse.json").unlink(),
    "signed by a stranger": lambda p: sign(p / "out", p / "stranger.pem"),
    "a made-up signature under the signer's key id": forge_signature,
    "no signature in the envelope": lambda p: put_envelope(p, {**envelope_of(p), "signatures": []}),
    "no envelope": lambda p: put_envelope(p, []),
    "another payload type": lambda p: put_envelope(p, {**envelope_of(p), "payloadType": "text/plain"}),
    "another payload type, signed": sign_other_type,
    "payload edited": lambda p: edit_payload(p, lambda s: s["subject"][0]["digest"].update(sha256="0" * 64)),
    "payload is no base64": lambda p: put_envelope(p, {**envelope_of(p), "payload": "§"}),
    "a statement of fewer files, signed": sign_other_statement,
    "provenance edited where nothing else looks": edit_provenance,
    "another sound build under the old signature": replace_build,
    "the signed evaluation edited": lambda p: (p / "out/evaluation/evaluation.json").write_text('{"schema": 1}'),
    "the report edited": lambda p: (p / "out/report.html").write_text("fine"),
}  # fmt: skip


def test_a_signed_build_passes_with_the_signers_key(signed: Path) -> None:
    result = check(signed)
    assert result.passed
    assert verdict(result).startswith("pass: 9 files signed by key ")
    named = statement_subjects(json.loads((signed / "out/provenance.intoto.json").read_text()))
    assert {"provenance.json", "evaluation.json", "calibration.cache", "minmax.qdq.onnx"} <= set(named)


@pytest.mark.parametrize("name", TAMPERS)
def test_no_tampering_passes_under_a_key(signed: Path, name: str) -> None:
    TAMPERS[name](signed)
    result = check(signed)
    assert not result.passed
    assert verdict(result).startswith("fail")


def test_another_key_does_not_open_the_gate(signed: Path) -> None:
    assert verdict(check(signed, "stranger.pub.pem")) == "fail: no signature by this key"


def test_a_second_signature_does_not_hide_the_first(signed: Path) -> None:
    document = envelope_of(signed)
    payload = base64.b64decode(document["payload"])
    second = sign_payload(payload, PAYLOAD_TYPE, load_private_key(signed / "stranger.pem")).document()["signatures"]
    put_envelope(signed, {**document, "signatures": [*second, *document["signatures"]]})
    assert check(signed).passed
    assert check(signed, "stranger.pub.pem").passed


def test_without_a_key_a_signature_is_pointed_out_and_its_content_compared(signed: Path) -> None:
    result = check(signed, None)
    assert result.passed
    assert verdict(result) == "note: signed, but not verified"
    replace_build(signed)
    assert verdict(check(signed, None)).startswith("fail: not of this build")


def add_an_entry(place: Path) -> None:
    path = place / "out/minmax.cache"
    path.write_bytes(path.read_bytes() + b"x: 3c010a14\n")


def link_out(place: Path) -> None:
    (place / "out/minmax.cache").rename(place / "elsewhere.cache")
    (place / "out/minmax.cache").symlink_to(place / "elsewhere.cache")


def edit_seed(place: Path) -> None:
    document = json.loads((place / "out/provenance.json").read_text())
    document["seed"] += 1
    (place / "out/provenance.json").write_text(json.dumps(document))


def write_evaluation(place: Path, text: str) -> None:
    (place / "out/evaluation/evaluation.json").write_text(text)


@pytest.mark.parametrize(
    ("touch", "told"),
    [
        (add_an_entry, r"changed: minmax\.cache"),
        (lambda place: (place / "out/minmax.cache").unlink(), r"missing or changed: minmax\.cache"),
        (link_out, r"links: minmax\.cache"),
        (edit_seed, r"seed and request\.seed differ"),
        (lambda place: write_evaluation(place, "{}"), "evaluation.json of schema 1"),
        (lambda place: write_evaluation(place, "[" * 100_000), "evaluation.json of schema 1"),
    ],
)
def test_what_the_gate_would_refuse_is_not_signed(signed: Path, touch: Callable[[Path], Any], told: str) -> None:
    before = (signed / "out/provenance.dsse.json").read_bytes()
    touch(signed)
    with pytest.raises((UsageError, FormatError), match=told):
        sign(signed / "out", signed / "release.pem")
    assert (signed / "out/provenance.dsse.json").read_bytes() == before


@pytest.mark.parametrize("kind", ["missing", "text", "rsa", "public for private", "private for public", "encrypted"])
def test_keys_that_cannot_be_used_are_explained(signed: Path, kind: str) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    path, read = signed / "key.pem", load_private_key
    if kind == "text":
        path.write_text("hello")
    elif kind == "rsa":
        key = rsa.generate_private_key(65537, 2048)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    elif kind == "encrypted":
        secret = serialization.BestAvailableEncryption(b"x")
        data = load_private_key(signed / "release.pem").private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret
        )
        path.write_bytes(data)
    elif kind == "public for private":
        path = signed / "release.pub.pem"
    elif kind == "private for public":
        path, read = signed / "release.pem", load_public_key
    with pytest.raises(UsageError, match="remedy"):
        read(path)


def test_keys_made_as_documented_work(signed: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    private, public = signed / "k.pem", signed / "k.pub.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    sign(signed / "out", private)
    assert check(signed, "k.pub.pem").passed


def test_the_signed_bytes_are_those_of_the_protocol() -> None:
    """The example of the DSSE protocol text."""
    encoded = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_an_envelope_survives_writing_and_reading(signed: Path) -> None:
    key = load_private_key(signed / "release.pem")
    envelope = sign_payload(b"\x00payload\xff", PAYLOAD_TYPE, key)
    again = parse_envelope(json.dumps(envelope.document()).encode(), "x")
    assert again == envelope
    assert is_signed_by(again, load_public_key(signed / "release.pub.pem"))
    other = Envelope(again.payload, again.payload_type + " ", again.signatures)
    assert not is_signed_by(other, load_public_key(signed / "release.pub.pem"))
    url_safe = (
        json.dumps(envelope.document())
        .replace("+", "-")
        .replace("/", "_")
        .replace("application_vnd.in-toto-json", PAYLOAD_TYPE)
    )
    assert parse_envelope(url_safe.encode(), "x").payload == envelope.payload


def test_a_signature_of_the_wrong_length_is_no_signature(signed: Path) -> None:
    key = load_public_key(signed / "release.pub.pem")
    assert not is_signed_by(Envelope(b"x", PAYLOAD_TYPE, (Signature("", b""), Signature("", b"y" * 63))), key)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"payload": "", "payloadType": "x", "signatures": [5]}', b"\xff", b"[" * 100000]
)
def test_what_is_no_envelope_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(FormatError, match="DSSE"):
        parse_envelope(data, "file")


def test_the_commands_exit_codes(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, key = str(signed / "net.onnx"), str(signed / "release.pub.pem")
    folder = str(signed / "out")
    assert run(["verify", folder, "--model", model, "--key", key, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    assert run(["verify", folder, "--model", model, "--key", str(signed / "stranger.pub.pem")]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("FAIL  signature")
    assert "remedy: " in printed.splitlines()[1]
    assert printed.splitlines()[-1].startswith("refused: 1 check failed; not checked: ")
    assert run(["verify", folder, "--model", model, "--key", model]) == 2
    assert run(["sign", folder, "--key", str(signed / "release.pem"), "--json"]) == 0
    assert run(["sign", str(signed), "--key", str(signed / "release.pem")]) == 2
    assert "remedy" in capsys.readouterr().err
