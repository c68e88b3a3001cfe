"""A minimal client of the API server for what `up` and `status` need: get, apply, readiness."""

import base64
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hack.cluster.settings import ClusterError

# The folder of the API path for each kind that `apply` is used with.
_PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "Node": "nodes",
    "PersistentVolume": "persistentvolumes",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StorageClass": "storageclasses",
}


class Api:
    """Speaks to the server that a kubeconfig made by `certificates` names."""

    def __init__(self, kubeconfig: Path) -> None:
        content = json.loads(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        address = urlsplit(cluster["server"])
        self.host, self.port = address.hostname or "", address.port or 443
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            self.context.load_cert_chain(pair.name)

    def request(self, method: str, path: str, body: object = None, kind: str = "application/json") -> tuple[int, str]:
        """Status and text of one call; status 0 when nobody answers."""
        connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=10)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, body=text, headers={"Content-Type": kind})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def get(self, path: str) -> dict[str, Any] | None:
        status, text = self.request("GET", path)
        return json.loads(text) if status == 200 else None

    def ready(self) -> bool:
        return self.request("GET", "/readyz")[0] == 200

    def apply(self, manifest: dict[str, Any]) -> None:
        """Server-side apply, by force: nobody else owns these objects."""
        metadata = manifest["metadata"]
        version = manifest["apiVersion"]
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        path = f"{prefix}{inside}/{_PLURALS[manifest['kind']]}/{metadata['name']}"
        query = "?fieldManager=taskfold-local-cluster&force=true"
        status, text = self.request("PATCH", path + query, manifest, "application/apply-patch+yaml")
        if status not in {200, 201}:
            raise ClusterError(f"applying {manifest['kind']} {metadata['name']} failed ({status}): {text[:500]}")


def wait(what: str, holds: Callable[[], object], limit: float, why_not: Callable[[], str] = lambda: "") -> None:
    """Wait until `holds` returns something true, at most `limit` seconds."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} did not happen within {limit:.0f} s\n{why_not()}".rstrip())
        time.sleep(0.1)
