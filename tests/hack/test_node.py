"""The node's configuration files."""

import tomllib

from hack.cluster import node, settings

CHOSEN = settings.read({"nodes": "2"}, {"HOME": "/h"})


def test_the_toml_text_reads_back_as_the_same_table() -> None:
    for table in (node.containerd_config(CHOSEN, 2), node.mirror_config(CHOSEN)):
        assert tomllib.loads(node.toml(table)) == table


def test_two_nodes_share_no_path_and_no_range() -> None:
    first, second = (node.containerd_config(CHOSEN, number) for number in (1, 2))
    assert first["root"] != second["root"]
    assert first["state"] != second["state"]
    ranges = [node.cni_config(CHOSEN, n)["plugins"][0]["ipam"]["ranges"][0][0]["subnet"] for n in (1, 2)]
    assert ranges == ["10.244.1.0/24", "10.244.2.0/24"]


def test_a_shim_socket_fits_into_a_unix_address() -> None:
    longest = settings.read({"name": "a" * 18, "nodes": "9"}, {"HOME": "/h"})
    folder = node.containerd_config(longest, 9)["plugins"]["io.containerd.shim.v1.manager"]["socket_dir"]
    assert len(folder) + 1 + 64 <= 106
