"""Reading results through the real API server, with every kind of login, and past it."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conformance import harness
from tests.reading import scene, stored
from tests.reading.conftest import ENDED, Finished, set_status

Past = Callable[..., scene.Login]


def path(namespace: str, name: str, rest: str = "files", resource: str = "taskruns") -> str:
    return f"{scene.ROOT}/namespaces/{namespace}/{resource}/{name}/{rest}"


@pytest.fixture(scope="module")
def front_proxy() -> tuple[Path, Path]:
    """The API server's own certificate for requests that it passes on."""
    folder = scene.local_cluster().certificates
    return folder / "front-proxy-client.crt", folder / "front-proxy-client.key"


def test_a_login_by_client_certificate_reads_what_its_role_allows(
    cluster: harness.Cluster, namespace: str, people: scene.People, finished: Finished
) -> None:
    name, kept = finished()
    kubeconfig = people.by_certificate("ada", "researchers")
    scene.allow(cluster, namespace, scene.user("ada"), "taskruns/files", "taskruns/log")
    ada = people.login(kubeconfig)
    index = scene.when_answered(ada, path(namespace, name), 200).json
    (archive,) = index["archives"]
    content = ada.get(path(namespace, name, f"files/{archive['key']}"))
    assert content.status == 200
    assert content.body == (kept.folder / archive["key"]).read_bytes()
    assert stored.sha256(content.body) == archive["sha256"]
    assert content.headers["ETag"] == f'"sha256-{archive["sha256"]}"'
    assert int(content.headers["Content-Length"]) == archive["bytes"] == len(content.body)


def test_a_service_account_reads_by_its_token(
    cluster: harness.Cluster, namespace: str, people: scene.People, finished: Finished
) -> None:
    name, _ = finished()
    reader = people.login(people.by_token(namespace, "reader"))
    assert reader.get(path(namespace, name)).status == 403
    scene.allow(cluster, namespace, scene.account(namespace, "reader"), "taskruns/log")
    log = scene.when_answered(reader, path(namespace, name, "log"), 200)
    assert log.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert log.body.decode() == (
        "==> /logs/agent/stdout.txt <==\nworked\n\n"
        "==> /logs/verifier/entrypoint-stdout.txt <==\nstarted\n\n"
        "==> /logs/verifier/test-stdout.txt <==\ntested, and well\n\n"
    )
    assert reader.get(path(namespace, name)).status == 403, "log and files are two rights"


def test_a_user_of_another_namespace_gets_nothing(
    cluster: harness.Cluster,
    namespace: str,
    other_namespace: str,
    people: scene.People,
    finished: Finished,
    past: Past,
    front_proxy: tuple[Path, Path],
) -> None:
    name, kept = finished()
    theirs, _ = finished(where=other_namespace)
    kubeconfig = people.by_certificate("eve")
    scene.allow(cluster, other_namespace, scene.user("eve"), "taskruns/files", "taskruns/log")
    eve = people.login(kubeconfig)
    assert scene.when_answered(eve, path(other_namespace, theirs), 200).json["archives"]
    beside = past(front_proxy, X_Remote_User="eve", X_Remote_Group="system:authenticated")
    assert beside.get(path(other_namespace, theirs)).status == 200
    for rest in ("files", "log", "files/files-0123.tar", "files/row.json"):
        assert eve.get(path(namespace, name, rest)).status == 403
        refused = beside.get(path(namespace, name, rest))
        assert (refused.status, refused.json["reason"], refused.json["kind"]) == (403, "Forbidden", "Status")
        assert 'User "eve" cannot get resource' in refused.json["message"]
    # Nor by way of his own: neither a path out of his prefix nor another's run under his namespace.
    for key in (f"../../{kept.prefix.split('/')[2]}/1/row.json", "%2e%2e/%2e%2e/1/row.json", "/etc/passwd"):
        assert eve.get(path(other_namespace, theirs, f"files/{key}")).status in (400, 403, 404)
        assert beside.get(path(other_namespace, theirs, f"files/{key}")).status in (400, 403, 404)


def test_without_a_login_nobody_reads(namespace: str, people: scene.People, finished: Finished) -> None:
    name, _ = finished()
    anonymous = people.nobody()
    for rest in ("files", "log"):
        assert anonymous.get(path(namespace, name, rest)).status in (401, 403)


def test_headers_count_only_with_the_api_servers_certificate(
    namespace: str, finished: Finished, past: Past, people: scene.People, tmp_path: Path
) -> None:
    name, _ = finished()
    forged = {"X_Remote_User": "kubernetes-admin", "X_Remote_Group": "system:masters"}
    token = {"Authorization": "Bearer abc"}
    for login in (past(None, **forged), past(None, **token)):
        for where in (path(namespace, name), path(namespace, name, "log"), scene.ROOT):
            answer = login.get(where)
            assert (answer.status, answer.json["reason"], answer.json["code"]) == (401, "Unauthorized", 401)
    # A certificate of the cluster's own authority, a real administrator's even, is none of the front proxy's.
    admin = tmp_path / "admin"
    folder = scene.local_cluster().certificates
    for pair in (
        (folder / "admin.crt", folder / "admin.key"),
        scene.self_signed(admin.parent, "x", "front-proxy-client"),
    ):
        with pytest.raises(OSError, match=r"(?i)ssl|reset|alert|unknown ca|closed"):
            past(pair, **forged).get(path(namespace, name))


def test_a_certificate_of_the_authority_under_another_name_is_refused(
    namespace: str, finished: Finished, past: Past, tmp_path: Path
) -> None:
    name, _ = finished()
    folder = scene.local_cluster().certificates
    authority = (folder / "front-proxy-ca.crt", folder / "front-proxy-ca.key")
    # openssl keeps the serial number beside the authority: not in the cluster's folder.
    copies = (tmp_path / "ca.crt", tmp_path / "ca.key")
    for source, copy in zip(authority, copies, strict=True):
        copy.write_bytes(source.read_bytes())
    pair = scene.signed_by(tmp_path, "other", "somebody-else", copies)
    answer = past(pair, X_Remote_User="kubernetes-admin", X_Remote_Group="system:masters").get(path(namespace, name))
    assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")


def test_a_run_that_goes_on_is_a_conflict_that_says_how_to_wait(
    cluster: harness.Cluster, namespace: str, admin: scene.Login, finished: Finished
) -> None:
    name, _ = finished(phase="Running", complete=False)
    for rest in ("files", "log", "files/row.json"):
        answer = admin.get(path(namespace, name, rest))
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        assert f"kubectl --namespace {namespace} wait taskrun/{name} --for=condition=Complete" in answer.json["message"]
    set_status(cluster, namespace, name, ENDED)
    assert scene.when_answered(admin, path(namespace, name), 200).json["archives"]


def test_what_was_removed_by_retention_is_gone(namespace: str, admin: scene.Login, finished: Finished) -> None:
    name, _ = finished(None)
    answer = admin.get(path(namespace, name))
    assert (answer.status, answer.json["message"]) == (
        404,
        f"nothing is kept of attempt 1 of TaskRun {name}: its time in the store is over",
    )


def test_what_is_not_there_is_not_found(
    namespace: str, admin: scene.Login, finished: Finished, cluster: harness.Cluster
) -> None:
    name, _ = finished()
    unknown = ["files/none.tar", "files/files-4567.tar", "files/image.json", "files/logs/agent/stdout.txt"]
    unknown += [
        "files/../1/row.json",
        "files/%2e%2e/row.json",
        "files//row.json",
        "files/row.json/",
        "files/row.json%00",
    ]
    for rest in unknown:
        answer = admin.get(path(namespace, name, rest))
        assert answer.status in (400, 404), rest
    assert admin.get(path(namespace, "no-such-run")).json["reason"] == "NotFound"
    assert admin.get(path(namespace, name) + "?attempt=2").status == 404
    assert admin.get(path(namespace, name) + "?attempt=0").status == 400
    assert admin.get(path(namespace, name, "log?source=nobody")).status == 400
    assert admin.get(path(namespace, name), method="POST").status == 405
    empty, _ = finished(None, store=None)
    assert "left no files" in admin.get(path(namespace, empty)).json["message"]


def test_the_place_is_never_taken_from_the_status(namespace: str, admin: scene.Login, finished: Finished) -> None:
    _, victim = finished()
    for forged in (victim.prefix, "test/../../etc/", "/etc/", f"other/{namespace}/x/1/"):
        name, _ = finished(None, store=forged)
        answer = admin.get(path(namespace, name))
        assert (answer.status, answer.json["reason"]) == (404, "NotFound"), forged
        assert "not in this operator's store" in answer.json["message"]


def test_the_index_names_documents_archives_and_artifacts(
    namespace: str, admin: scene.Login, finished: Finished
) -> None:
    name, kept = finished()
    index = admin.get(path(namespace, name)).json
    assert index["metadata"]["name"] == name
    assert (index["kind"], index["apiVersion"], index["attempt"]) == ("KeptFiles", f"{scene.GROUP}/v1alpha1", 1)
    assert {each["key"] for each in index["documents"]} == {
        "artifacts.json",
        "collected.json",
        "rewards.json",
        "row.json",
    }
    report, _, none = index["artifacts"]
    assert (report["destination"], report["status"], none["status"]) == ("app-report", "ok", "missing")
    assert none["archive"] is None
    content = admin.get(path(namespace, name, f"files/{report['archive']['key']}"))
    assert stored.sha256(content.body) == report["archive"]["sha256"]
    row = admin.get(path(namespace, name, "files/row.json"))
    assert row.headers["Content-Type"].startswith("application/json")
    assert row.headers["ETag"] == f'"sha256-{stored.sha256(row.body)}"'
    assert row.body == (kept.folder / "row.json").read_bytes()


def test_parts_of_a_file_and_ends_of_a_text(namespace: str, admin: scene.Login, finished: Finished) -> None:
    name, kept = finished()
    whole = (kept.folder / "files-0123.tar").read_bytes()
    at = path(namespace, name, "files/files-0123.tar")
    for wanted, part in (("bytes=0-9", whole[:10]), ("bytes=100-", whole[100:]), ("bytes=-7", whole[-7:])):
        answer = admin.get(at, Range=wanted)
        assert (answer.status, answer.body) == (206, part)
        assert answer.headers["Content-Range"].endswith(f"/{len(whole)}")
    assert admin.get(at, Range=f"bytes={len(whole)}-").status == 416
    assert admin.get(at, Range="bytes=0-1", If_Range='"other"').body == whole
    tail = admin.get(path(namespace, name, "log?source=verifier&tailBytes=5")).body.decode()
    left_out = len(stored.LOGS["logs/verifier/test-stdout.txt"]) - 5
    assert tail == (
        f"==> /logs/verifier/test-stdout.txt <==\n(the first {left_out} of {left_out + 5} bytes are left out)\nwell\n\n"
    )


def test_an_agents_own_pod_is_not_believed_about_the_verifier(
    namespace: str, admin: scene.Login, finished: Finished
) -> None:
    def separate(store: Path, prefix: str, _: str) -> stored.Kept:
        kept = stored.Kept(store, prefix)
        forged = {"logs/agent/stdout.txt": b"worked\n", "logs/verifier/test-stdout.txt": b"all tests passed\n"}
        kept.archive("agent-01.tar", "agent", stored.tar(forged))
        told = {"logs/agent/stdout.txt": b"never\n", "logs/verifier/test-stdout.txt": b"2 of 3 failed\n"}
        kept.archive("verifier-02.tar", "verifier", stored.tar(told))
        kept.end()
        return kept

    name, _ = finished(separate)
    log = admin.get(path(namespace, name, "log")).body.decode()
    assert log == "==> /logs/agent/stdout.txt <==\nworked\n\n==> /logs/verifier/test-stdout.txt <==\n2 of 3 failed\n\n"


def test_steps_of_a_task(namespace: str, admin: scene.Login, finished: Finished) -> None:
    def steps(store: Path, prefix: str, _: str) -> stored.Kept:
        kept = stored.Kept(store, prefix)
        files = {
            "logs/steps/one/agent/stdout.txt": b"on one\n",
            "logs/steps/two/agent/stdout.txt": b"on two\n",
            "logs/entrypoint-stdout.txt": b"started\n",
        }
        kept.archive("files-01.tar", "sandbox", stored.tar(files))
        kept.archive(
            "steps/two/verifier-02.tar", "verifier", stored.tar({"logs/verifier/test-stdout.txt": b"two\n"}), "two"
        )
        kept.document("steps/one/rewards.json", {})
        kept.end()
        return kept

    name, _ = finished(steps)
    assert admin.get(path(namespace, name, "log?step=one")).body.decode() == (
        "==> /logs/steps/one/agent/stdout.txt <==\non one\n\n==> /logs/entrypoint-stdout.txt <==\nstarted\n\n"
    )
    two = admin.get(path(namespace, name, "log?step=two&source=verifier")).body.decode()
    assert two == "==> /logs/verifier/test-stdout.txt <==\ntwo\n\n"
    documents = admin.get(path(namespace, name)).json["documents"]
    assert {"key": "steps/one/rewards.json", "step": "one", "bytes": 2} in documents


def test_verifications_are_read_under_their_own_names(
    cluster: harness.Cluster, namespace: str, admin: scene.Login, finished: Finished, operator: scene.Server
) -> None:
    name, _ = finished()
    uid = cluster.run(namespace, name)["metadata"]["uid"]

    def create(verifier: str, **metadata: Any) -> str:
        source = {"runRef": {"name": name, "uid": uid}}
        body = {
            "apiVersion": "taskfold.dev/v1alpha1",
            "kind": "VerifierRun",
            "metadata": {"name": verifier, **metadata},
            "spec": {"source": source, "mode": "separate"},
        }
        args = (harness.GROUP, harness.VERSION, namespace, "verifierruns")
        return str(cluster.custom.create_namespaced_custom_object(*args, body)["metadata"]["uid"])

    reference = {"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "name": name, "uid": uid}
    owned = {"ownerReferences": [{**reference, "controller": True}], "labels": {"taskfold.dev/attempt": "1"}}
    create(f"{name}-1-verify", **owned)
    index = admin.get(path(namespace, f"{name}-1-verify", resource="verifierruns")).json
    assert (index["metadata"]["name"], index["metadata"]["uid"]) == (name, uid)

    own = create(f"{name}-again")
    free = path(namespace, f"{name}-again", resource="verifierruns")
    assert admin.get(free).status == 409
    prefix = f"test/{namespace}/{own}/1/"
    kept = stored.Kept(operator.store, prefix)
    content = stored.tar({"logs/verifier/test-stdout.txt": b"graded again\n"})
    kept.put("verifier-01.tar", content)
    archive = {"key": "verifier-01.tar", "bytes": len(content), "sha256": stored.sha256(content), "entries": 1}
    kept.document("verifier.json", {"archive": archive, "error": ""})
    body = {"status": {"phase": "Succeeded", "complete": True, "store": prefix}}
    args = (harness.GROUP, harness.VERSION, namespace, "verifierruns", f"{name}-again")
    cluster.custom.patch_namespaced_custom_object_status(*args, body)
    assert admin.get(free).json["metadata"]["uid"] == own
    log = admin.get(path(namespace, f"{name}-again", "log?source=verifier", "verifierruns"))
    assert b"graded again" in log.body


MIB = 1024 * 1024


def large(megabytes: int) -> Callable[[Path, str, str], stored.Kept]:
    """A kept archive of so many MiB of no sense."""

    def fill(store: Path, prefix: str, _: str) -> stored.Kept:
        kept = stored.Kept(store, prefix)
        kept.put("files-big.tar", b"")
        digest = hashlib.sha256()
        with (kept.folder / "files-big.tar").open("wb") as file:
            for number in range(megabytes):
                block = hashlib.sha256(str(number).encode()).digest() * (MIB // 32)
                digest.update(block)
                file.write(block)
        kept.named("files-big.tar", "sandbox", megabytes * MIB, digest.hexdigest())
        kept.end()
        return kept

    return fill


@pytest.mark.bulk
def test_a_large_archive_streams_in_flat_memory(
    namespace: str, admin: scene.Login, finished: Finished, operator: scene.Server
) -> None:
    """300 MiB, or 1 GiB if TASKFOLD_SOAK=1."""
    megabytes = 1024 if os.environ.get("TASKFOLD_SOAK") == "1" else 300
    name, _ = finished(large(megabytes))
    at = path(namespace, name, "files/files-big.tar")
    assert admin.get(path(namespace, name)).status == 200
    before, most = operator.rss(), 0
    digest, size = hashlib.sha256(), 0
    with admin.open(at) as response:
        while chunk := response.read(MIB):
            digest.update(chunk)
            size += len(chunk)
            most = max(most, operator.rss())
        tag = response.headers["ETag"]
    assert (size, f'"sha256-{digest.hexdigest()}"') == (megabytes * MIB, tag)
    assert most - before < 48 * MIB


def test_a_server_that_dies_in_the_middle_is_an_error_and_never_a_short_file(
    namespace: str, admin: scene.Login, finished: Finished, operator: scene.Server
) -> None:
    name, _ = finished(large(64))
    at = path(namespace, name, "files/files-big.tar")
    with admin.open(at) as response:
        got = len(response.read(MIB))
        operator.kill()
        try:
            with pytest.raises((OSError, ValueError, scene.IncompleteRead)):
                while chunk := response.read(MIB):
                    got += len(chunk)
                if got < 64 * MIB:
                    raise scene.IncompleteRead(b"", 64 * MIB - got)
        finally:
            operator.start()
    assert got < 64 * MIB
    assert scene.when_answered(admin, path(namespace, name), 200, 60).json["archives"]


def test_a_slow_reader_keeps_nobody_else_waiting(
    namespace: str, admin: scene.Login, finished: Finished, operator: scene.Server
) -> None:
    name, _ = finished(large(64))
    at = path(namespace, name, "files/files-big.tar")
    with admin.open(at) as slow:
        slow.read(1)
        assert admin.get(path(namespace, name)).status == 200
        assert len(admin.get(at, Range="bytes=0-1048575").body) == MIB


def test_connections_without_a_certificate_are_hung_up_on(operator: scene.Server, past: Past) -> None:
    login = past(None)
    address = urlsplit(login.server)
    with (
        socket.create_connection((address.hostname, address.port), timeout=30) as plain,
        login.context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        assert secure.recv(1) == b""
    health = login.get("/healthz")
    assert (health.status, health.body) == (200, b"ok")


def test_the_api_is_discovered_and_kubectl_keeps_its_meaning(
    cluster: harness.Cluster, namespace: str, finished: Finished
) -> None:
    name, _ = finished()
    listed = harness.kubectl(cluster, "get", "--raw", scene.ROOT)
    assert {each["name"] for each in json.loads(listed)["resources"]} == {
        "taskruns/files",
        "taskruns/log",
        "verifierruns/files",
        "verifierruns/log",
    }
    assert name in harness.kubectl(cluster, "--namespace", namespace, "get", "taskruns")
    assert "GROUP:      taskfold.dev\n" in harness.kubectl(cluster, "explain", "taskrun")
    index = json.loads(harness.kubectl(cluster, "get", "--raw", path(namespace, name)))
    assert index["archives"]
    log = harness.kubectl(cluster, "get", "--raw", path(namespace, name, "log?source=verifier"))
    assert "tested, and well" in log
    assert "yes" in harness.kubectl(
        cluster, "auth", "can-i", "get", f"taskruns.{scene.GROUP}/{name}", "--subresource=files", "-n", namespace
    )


def test_many_readers_at_once(namespace: str, admin: scene.Login, finished: Finished) -> None:
    name, kept = finished(large(4))
    at = path(namespace, name, "files/files-big.tar")
    whole = (kept.folder / "files-big.tar").read_bytes()
    answers: list[scene.Answer] = []

    def read() -> None:
        answers.append(admin.get(at))

    threads = [threading.Thread(target=read) for _ in range(24)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert len(answers) == 24
    assert {answer.status for answer in answers} <= {200, 429}
    assert all(answer.body == whole for answer in answers if answer.status == 200)
    assert all(answer.headers["Retry-After"] for answer in answers if answer.status == 429)
