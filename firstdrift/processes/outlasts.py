"""Imported by the process that child processes are forked from (`set_forkserver_preload`), and by no other.

A signal that is sent to all processes at once (a service that is stopped, a group of a shell) must not end it
before the children that it knows the exit status of. It ends when the process that started it has.
"""

import os
import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
# Imported before NumPy, whose OpenBLAS sets memory aside for each core; children work side by side instead.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
