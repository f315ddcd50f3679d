"""Write the scripts that the static book loads on first use: the real distributions, and the play models' weights."""

import argparse
import sys

from minigpt.explorers import distributions, weights


def main():
    """Write the files that are not up to date."""
    argparse.ArgumentParser(prog="python -m minigpt.explorers", description=__doc__).parse_args()
    try:
        written = [distributions.FILE] if distributions.write() else []
        written += [weights.script(name) for name in weights.write()]
    except (ValueError, OSError) as error:  # missing or damaged weights: the message has the command that mends it
        sys.exit(f"no data for the live figures: {error}")
    for path in (distributions.FILE, *map(weights.script, weights.NAMES)):
        print(f"{'wrote' if path in written else 'up to date:'} {path} ({path.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
