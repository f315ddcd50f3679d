"""Write `js/distributions.js`, the real distributions that the figures of the static book load on first use."""

import argparse
import sys

from minigpt.explorers import distributions


def main():
    """Write the file unless it is up to date."""
    argparse.ArgumentParser(prog="python -m minigpt.explorers", description=__doc__).parse_args()
    try:
        what = "wrote" if distributions.write() else "up to date:"
    except (ValueError, OSError) as error:  # missing or damaged weights: the message has the command that mends it
        sys.exit(f"no distributions for the live figures: {error}")
    print(f"{what} {distributions.FILE} ({distributions.FILE.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
