"""The command `firstdrift` as `python -m firstdrift.cli`."""

from firstdrift.cli import run

if __name__ == "__main__":
    run()
