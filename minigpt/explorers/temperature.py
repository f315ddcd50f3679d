"""The temperature figure. Chapter 02."""

from traitlets import Int, validate

from minigpt.explorers.base import Explorer, OfDistribution, check_between
from minigpt.sampling import SamplingParams


class TemperatureExplorer(OfDistribution, Explorer):
    """A next-token distribution under a temperature slider, with its entropy, and draws beside the theory.

    Args:
        source: name of a distribution in `js/catalogue.js`, such as `"toy"`, `"capital"`, `"once"`.
        temperature: T, in [0, 2]; 0 is greedy.
        draws: how many tokens to draw, at least 0.
        seed: their seed, 0 to 2**32 - 1; the draws are those of row 0 of a request with this seed.

    Raises:
        ValueError: an unknown name, a value outside its range.
    """

    name = "temperature"
    draws = Int(0).tag(sync=True)
    seed = Int(0).tag(sync=True)

    @validate("draws")
    def _check_draws(self, proposal):
        if proposal.value < 0:
            raise ValueError(f"draws={proposal.value} must be at least 0")
        return proposal.value

    @validate("seed")
    def _check_seed(self, proposal):
        return check_between(proposal, 0, 2**32 - 1)

    def picture(self):
        """The likeliest tokens at this temperature."""
        return self.likeliest(SamplingParams(temperature=self.temperature))
