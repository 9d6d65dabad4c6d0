"""Leader election per job, a scheduler, and a process manager for 2 to 20 servers.

Importing the package costs nothing: the launcher, which must stay small, imports it too.
"""

__version__ = "0.1.0"
