"""Submodels in separate processes (``ISOLATION=PROCESS``).

A compiled model in a worker process is a normal `CompiledModel` for schedules. Tensors pass through memory that both
processes map (`shared_memory`). Messages (`messages`) pass through one socket per running inference (`channel`); rare
messages pass through one socket per worker (`mailbox`). A process that has already imported all modules (`fork_server`)
forks the workers, so a new worker starts within milliseconds. A worker that crashes or does not answer in time is
replaced (`supervisor`).

No named resource outlives the processes: memory is anonymous, sockets have no names, and a worker ends with its
application, even if the application is killed.
"""
