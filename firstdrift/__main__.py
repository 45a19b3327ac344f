"""The command `firstdrift` as `python -m firstdrift`, for where no script was installed beside Python."""

from firstdrift.cli import main

if __name__ == "__main__":
    main()
