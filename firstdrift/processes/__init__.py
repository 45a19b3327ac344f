"""Processes that may die: what reads dumps runs in them, with limits, so that no dump brings down more.

limits      how much memory and processor time a process may use
endings     what the way in which a process ended says about why
forked      a process that is forked from the one which is kept for that
children    processes that answer questions about dumps, for a process that must live
writers     processes that write something piece by piece, for a process that must live
apart       a command of the terminal in a process of its own
"""
