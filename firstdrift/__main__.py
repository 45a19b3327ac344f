"""The command `firstdrift` as `python -m firstdrift`, for where no script was installed beside Python."""

from firstdrift.cli import run

if __name__ == "__main__":
    run()
