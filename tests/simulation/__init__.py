"""A whole cluster in one thread: real cores, a model of the store, drifting clocks, faults, one seed."""
