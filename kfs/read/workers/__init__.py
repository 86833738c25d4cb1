"""The one engine that does work beside this process: tasks, in order, by this process and by others.

::

    from kfs.read.workers.run import run

    for item in run(job, tasks, jobs, here, output):     # in the order of the tasks
        ...

A :class:`~kfs.read.workers.job.Job` says what becomes of a task, and knows nothing of processes. What it yields
travels in one of three ways: pickled; its buffers in memory that both processes share; or, as
:class:`~kfs.read.workers.job.Output`, through no other process at all: its worker writes it to the output when it is
the task's turn. A job may find that a task has to begin elsewhere than was planned, where the one before it ended:
then what was done ahead is dropped, and this process does it again.

The workers are new interpreters, not forks: the caller may have threads, pyarrow's or DuckDB's, and a fork of such a
process may hang. Starting one takes a tenth of a second, so they are kept for a while
(:data:`~kfs.read.workers.pool.POOL`), and a thread of this process begins at once.

====================  ==================================================================================================
``job``               what jobs, and what they yield, have to be
``run``               where it is decided whether other processes are worth it
``team``              who does which task, and what they send, in the order of the tasks
``pool``              processes and threads, started, kept and ended
``worker``            what they do
``messages``          what both sides say to each other
``channel``           how: objects and descriptors through a socket
``portion``           items in a message, or beside it
``shared``            memory that both have
``kept_log``          what is logged by those that work ahead, kept until it is its turn
====================  ==================================================================================================
"""
