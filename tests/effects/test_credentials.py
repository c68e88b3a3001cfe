"""Where credentials come from, and that reading them stays cheap."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from taskfold.effects import credentials, errors

OPERATOR = Path(__file__).parents[2] / "operator"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate with its key in one folder."""
    folder = tmp_path_factory.mktemp("ca")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=test", "-days", "2"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def write(path: Path, user: dict[str, object], cluster: dict[str, object] | None = None) -> str:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "mine"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:8001/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def test_a_static_token(tmp_path: Path) -> None:
    found = await credentials.from_kubeconfig(write(tmp_path / "k", {"token": "t"})).current()
    assert found.server == "http://127.0.0.1:8001"
    assert (found.headers, found.namespace, found.ssl) == ({"Authorization": "Bearer t"}, "mine", None)
    assert "Bearer" not in repr(found)


async def test_certificates_from_data_and_from_files(tmp_path: Path, authority: Path) -> None:
    cert, key = authority / "cert.pem", authority / "key.pem"
    data = {
        "client-certificate-data": base64.b64encode(cert.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    cluster: dict[str, object] = {"server": "https://127.0.0.1:6443", "certificate-authority": str(cert)}
    for user in (data, {"client-certificate": str(cert), "client-key": str(key)}):
        found = await credentials.from_kubeconfig(write(tmp_path / "k", dict(user), cluster)).current()
        assert found.ssl is not None
        assert len(found.ssl.get_ca_certs()) == 1


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    source = credentials.from_kubeconfig(write(tmp_path / "k", {"tokenFile": "token"}))
    first = await source.current()
    (tmp_path / "token").write_text("two\n")
    assert await source.current() is first, "fresh for a minute"
    second = await source.renew(first)
    assert second.headers == {"Authorization": "Bearer two"}
    assert await source.renew(first) is second, "somebody has read it since"


async def test_the_ssl_context_lives_as_long_as_its_material(tmp_path: Path, authority: Path) -> None:
    folder = tmp_path
    (folder / "ca.crt").write_bytes((authority / "cert.pem").read_bytes())
    (folder / "token").write_text("one")
    (folder / "namespace").write_text("taskfold")
    source = credentials.in_cluster(folder, {"KUBERNETES_SERVICE_HOST": "fd00::1"})
    first = await source.current()
    assert (first.server, first.namespace) == ("https://[fd00::1]:443", "taskfold")
    (folder / "token").write_text("two")
    second = await source.renew(first)
    assert second.headers != first.headers
    assert second.ssl is first.ssl, "connections are pooled by it"


async def test_a_half_written_token_keeps_the_old_one(tmp_path: Path, authority: Path) -> None:
    (tmp_path / "ca.crt").write_bytes((authority / "cert.pem").read_bytes())
    (tmp_path / "token").write_text("one")
    source = credentials.in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    first = await source.current()
    (tmp_path / "token").write_text("")
    assert await source.renew(first) is first


async def test_an_exec_plugin(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": [
            "-c",
            'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"p"}}\'',
        ],
        "interactiveMode": "Never",
    }
    found = await credentials.from_kubeconfig(write(tmp_path / "k", {"exec": plugin})).current()
    assert found.headers == {"Authorization": "Bearer p"}


@pytest.mark.parametrize("context", ["missing", None])
def test_a_kubeconfig_that_does_not_fit(tmp_path: Path, context: str | None) -> None:
    path = tmp_path / "k"
    if context:
        write(path, {"token": "t"})
    with pytest.raises(errors.CredentialError) as caught:
        credentials.from_kubeconfig(str(path), context=context)
    assert caught.value.remedy


def test_the_kubernetes_package_is_not_imported(tmp_path: Path) -> None:
    """It costs 50 MB."""
    path = write(tmp_path / "k", {"token": "t"})
    program = (
        "import asyncio, sys\n"
        "from taskfold.effects import client, credentials\n"
        f"asyncio.run(credentials.from_kubeconfig({path!r}).current())\n"
        "sys.exit('kubernetes' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(OPERATOR)})
