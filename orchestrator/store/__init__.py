"""Redis, in the words of `core/requests.py` and `core/answers.py`.

Nobody outside this package imports redis, knows a key name or sees an exception of the network.
Importing the package itself loads nothing; take `Store` from `store.store`, `StoreReader` from `store.reader`.
"""
