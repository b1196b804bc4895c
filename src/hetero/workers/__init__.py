"""Submodels in processes of their own (``ISOLATION=PROCESS``).

A compiled model that runs in a worker process is a `CompiledModel` like any other: schedules do not know. Tensors pass
through memory that both map (`shared_memory`), messages (`messages`) through a socket for each inference under way
(`channel`), and through ZeroMQ where they are rare (`worker`). Workers are forked by a process that has imported
everything already (`nursery`), so that a new one is there within milliseconds. One that crashes, or does not answer in
time, is replaced (`crew`).

Nothing of it has a name that outlives the processes: memory is anonymous, sockets are unlinked as soon as both sides
have them, and a worker ends when the process that it works for does, however that ends.
"""
