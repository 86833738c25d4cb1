"""The engine that runs tasks in parallel, in this process and in workers, and returns their results in order.

::

    from kfs.read.workers.run import run

    for item in run(job, tasks, jobs, here=here, output=output):     # in the order of the tasks
        ...

A :class:`~kfs.read.workers.job.Job` turns a task into items, and doesn't deal with processes. An item travels in one of
three ways: pickled; with its buffers in memory that both processes share; or, as
:class:`~kfs.read.workers.job.Output`, not at all: the worker writes it to the output when it is the task's turn.

A command without other threads forks its workers, which takes some milliseconds (:mod:`~kfs.read.workers.forking`).
Else they are new interpreters, because the caller may have threads (of pyarrow or DuckDB), and a fork of such a process
may hang. Starting an interpreter takes a tenth of a second. So idle workers are kept for a while
(:data:`~kfs.read.workers.pool.POOL`), and threads of this process begin at once.

====================  ==================================================================================================
``job``               the interfaces of jobs and their items
``run``               runs tasks, and decides whether workers are worth starting
``team``              distributes the tasks of a request to workers, and merges the results in task order
``pool``              starts, keeps and ends worker processes and threads
``forking``           starts a worker as a fork, if this process may be forked
``worker``            the code that a worker runs
``messages``          the messages between a parent and its workers
``channel``           sends objects and descriptors through a socket
``portion``           sends items within a message, or in shared memory
``shared``            memory shared by a worker and its parent
``kept_log``          keeps a worker's log messages until it is the task's turn
====================  ==================================================================================================
"""
