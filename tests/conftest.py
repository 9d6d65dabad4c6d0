# Here, not in tests/chaos: options and summaries must be known before anything is collected.
pytest_plugins = ["tests.chaos.trials"]
