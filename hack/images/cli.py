"""The command line: `python3 hack/images [NAME…]` makes images and pushes them to the cluster's registry."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hack.cluster import addons, programs, settings
from hack.cluster.settings import ClusterError, Settings
from hack.images import catalog, image, product, python38, registry, system


def known(cache: Path) -> dict[str, tuple[list[str], Callable[[], image.Image]]]:
    """Short name: upstream names it is pushed under, and how it is made."""
    test = catalog.TEST

    def no_shell() -> image.Image:
        folder = programs.ensure(cache)["pause"]
        return system.single_binary(cache, "test-no-shell", folder / "pause", "/app", {})

    def derived(name: str) -> Callable[[], image.Image]:
        return lambda: catalog.derived(cache, name)

    return {
        "python": ([catalog.PYTHON], lambda: catalog.python(cache)),
        "debian": ([catalog.DEBIAN], lambda: catalog.debian(cache)),
        **{name: ([f"{test}/{name}:1"], derived(name)) for name in catalog.DERIVED},
        "no-shell": ([f"{test}/no-shell:1"], no_shell),
        PYTHON38: ([f"{test}/python3.8:1"], lambda: python38.make(cache)),
        "coredns": ([addons.DNS_IMAGE], lambda: system.images(cache, programs.ensure(cache))["coredns"]),
        "haproxy": ([catalog.HAPROXY], lambda: catalog.haproxy(cache)),
        "helper": ([f"{product.HELPER}:{product.version()}"], lambda: product.helper(cache)),
        "operator": ([f"{product.OPERATOR}:{product.version()}"], lambda: product.operator(cache)),
    }


# Made when no name is given; the product's own two are asked for by name or with --all.
PRODUCT = ("helper", "operator")
PYTHON38 = "python3.8"
"""Left out where it cannot be made, unless it is asked for by name."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 hack/images", description=__doc__)
    parser.add_argument("names", nargs="*", help="python, debian, no-bash, …; without any: all but the product's own")
    parser.add_argument("--all", action="store_true", help="also the product's own images, helper and operator")
    parser.add_argument("--no-push", action="store_true", help="only make them")
    parser.add_argument("--site", action="store_true", help="only prepare build/site, which the Dockerfile copies")
    parser.add_argument(
        "--pinned", action="store_true", help="print NAME@DIGEST only: what a node cannot have in another version"
    )
    parser.add_argument("--registry", help="HOST:PORT instead of the local cluster's registry")
    parsed = parser.parse_args(arguments)
    try:
        chosen = settings.read({})
        return _make(parsed, settings.running(chosen) or chosen)
    except (ClusterError, image.ImageError, registry.RegistryError) as error:
        print(f"hack/images: {error}", file=sys.stderr)
        return 1


def _make(parsed: argparse.Namespace, chosen: Settings) -> int:
    if parsed.site:
        product.prepare_site(chosen.cache, product.SITE)
        print(f"{product.SITE} is ready")
        return 0
    images = known(chosen.cache)
    names = parsed.names or [name for name in images if parsed.all or name not in PRODUCT]
    if not parsed.names and python38.find() is None:
        names.remove(PYTHON38)
        print("python3.8: left out, as this machine has no Python 3.8", file=sys.stderr)
    if unknown := [name for name in names if name not in images]:
        raise image.ImageError(f"no image is called {', '.join(unknown)}; known are {', '.join(images)}")
    target = registry.Registry(parsed.registry or chosen.registry_on_host)
    for name in names:
        began = time.monotonic()
        upstream, make = images[name]
        made = make()
        size = sum(layer.size for layer in made.layers) / 2**20
        for full in upstream:
            pushed = "made" if parsed.no_push else ("pushed" if target.push(made, full) else "there already")
            if parsed.pinned:
                print(f"{full.rpartition(':')[0]}@{made.digest}", flush=True)
            else:
                print(f"{full:<45} {pushed:<14} {size:6.1f} MiB  {time.monotonic() - began:5.1f} s", flush=True)
    return 0
