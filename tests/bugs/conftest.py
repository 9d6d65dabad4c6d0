from tests.chaos.conftest import cluster, hole, make_cluster

__all__ = ["cluster", "hole", "make_cluster"]
