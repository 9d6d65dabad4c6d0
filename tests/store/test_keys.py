"""The names of keys, and the names that may stand in them."""

import pytest

from orchestrator.errors import ConfigError
from orchestrator.store.keys import Keys
from orchestrator.store.store import Store


@pytest.mark.parametrize("cluster", ["", "a{b", "a}b", "a:b", "a|b"])
def test_a_cluster_name_that_would_move_the_hash_tag_is_refused(cluster: str) -> None:
    with pytest.raises(ConfigError, match="cluster"):
        Keys(cluster)


@pytest.mark.parametrize("node", ["", "a|b"])
def test_a_node_name_that_would_split_a_lease_value_is_refused(node: str) -> None:
    with pytest.raises(ConfigError, match="node"):
        Store("redis://localhost", cluster="shop", node=node, request_timeout_s=1.0)


def test_all_keys_of_a_job_share_the_hash_tag_of_its_bucket() -> None:
    parts = Keys("shop").parts("beat")

    assert parts["lease"] == "orchestrator:{shop:12}:beat:lease"
    assert {name.removesuffix(word) for word, name in parts.items()} == {"orchestrator:{shop:12}:beat:"}


def test_a_wrong_url_is_a_mistake_of_the_user_and_says_of_what() -> None:
    with pytest.raises(ConfigError, match=r"^redis: the port must be a number from 1 to 65535"):
        Store("redis://h:99999/0", cluster="shop", node="n1", request_timeout_s=1.0)
