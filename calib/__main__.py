"""Run the command line with ``python -m calib``."""

from calib.cli.app import main

if __name__ == "__main__":
    main()
