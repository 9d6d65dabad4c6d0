"""The processes of a node: launcher, leashes, jobs, and the node's side of the wire to them.

    main (client.py) ── launcher (launcher.py) ── one leash per run (leash.py) ── the job (first_process.py)
                                                 a spare (ready.py) ────────────── waits for its command

Importing the package costs nothing: the launcher, which must stay small, imports it too.
Everything that runs below main (`launcher`, `leash`, `ready`, `ending`, `killing`, `first_process`, `pump`,
`logs`, `tree`, `page`, `wire`, `linux`) imports the standard library and each other, nothing else.
"""
