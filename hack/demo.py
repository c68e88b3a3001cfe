"""`make demo`: from nothing to a reward on the screen.

A cluster (the local one, unless TASKFOLD_KUBECONFIG names another), the operator installed by Helm, a TaskRun of
environments/hello_dataset applied with kubectl, its reward, and where to look next. Run again it changes nothing
that is there and runs one more TaskRun.
"""

import json
import os
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "taskfold"
TASK = "environments/hello_dataset/file-state"
WAIT_SECONDS = 180
PYTHON = ".venv/bin/python"


def say(text: str) -> None:
    print(f"\n\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def shown(*command: str) -> None:
    """Run a command and show it: everything here can be typed by hand."""
    print(f"$ {shlex.join(command)}", flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


def answer(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    started = time.monotonic()
    given = os.environ.get("TASKFOLD_KUBECONFIG")
    say("a Kubernetes cluster" + (f": {given}" if given else ""))
    shown(PYTHON, "hack/cluster", "up")
    os.environ["KUBECONFIG"] = answer(PYTHON, "hack/cluster", "kubeconfig")
    os.environ["PATH"] = f"{answer(PYTHON, 'hack/cluster', 'bin')}:{os.environ['PATH']}"
    if given:
        print("The images of the operator, its helper and the task are pulled by your cluster itself.")
    else:
        say("images: stand-ins under the names that the task folders use, and our own two")
        shown(PYTHON, "hack/images", "python", "helper", "operator")
    pins = [] if given else answer(PYTHON, "hack/images", "--pinned", "operator", "helper").split()
    say("the operator, by Helm")
    shown("kubectl", "apply", "--server-side", "--force-conflicts", "-f", "crds")
    shown(*helm(pins))
    say(f"a TaskRun: the reference solution works on {TASK}")
    name = f"hello-{secrets.token_hex(2)}"
    manifest = ROOT / "build/demo.yaml"
    manifest.parent.mkdir(exist_ok=True)
    render = (".venv/bin/taskfold", "render", TASK, "--agent", "oracle", "--name", name)
    manifest.write_text(answer(*render, "--namespace", NAMESPACE) + "\n")
    shown("kubectl", "apply", "-f", str(manifest.relative_to(ROOT)))
    shown(
        "kubectl", "-n", NAMESPACE, "wait", f"taskrun/{name}", "--for=condition=Complete", f"--timeout={WAIT_SECONDS}s"
    )
    shown("kubectl", "-n", NAMESPACE, "get", "taskrun,verifierrun")
    status = json.loads(answer("kubectl", "-n", NAMESPACE, "get", f"taskrun/{name}", "-o", "jsonpath={.status}"))
    reward = status.get("reward")
    say(f"reward: {reward} ({time.monotonic() - started:.0f} s since `make demo`)")
    print(
        f"""
Where to look next (export KUBECONFIG={os.environ["KUBECONFIG"]} and PATH={os.environ["PATH"].partition(":")[0]}:$PATH):

  kubectl -n {NAMESPACE} describe taskrun {name}      what happened, step by step
  kubectl explain taskrun.spec                     every field, with its meaning
  .venv/bin/taskfold run {TASK} --namespace {NAMESPACE}
  README.md, docs/                                 how to write a task folder, how to install

  make down                                        end the local cluster and leave nothing behind"""
    )
    return 0 if reward is not None and float(reward) >= 1 else 1


def helm(pins: list[str]) -> list[str]:
    """The install command. On the local cluster images are pinned: a node keeps what it has under a tag."""
    command = ["helm", "upgrade", "--install", "taskfold", "charts/taskfold", "--namespace", NAMESPACE]
    command += ["--create-namespace", "--skip-crds", "--hide-notes", "--wait", "--timeout", f"{WAIT_SECONDS}s"]
    if pins:
        operator, helper = pins
        command += ["--values", "hack/local-values.yaml", "--set", f"image.digest={operator.rpartition('@')[2]}"]
        command += ["--set", f"settings.helper.image={helper}"]
    return command


if __name__ == "__main__":
    sys.exit(main())
