"""The truncation figure. Chapter 03."""

from traitlets import Float, Int, Unicode, validate

from minigpt.explorers.base import Explorer, OfDistribution, check_between
from minigpt.explorers.distributions import entry
from minigpt.sampling import SamplingParams


class TruncationExplorer(OfDistribution, Explorer):
    """Which tokens a truncation rule keeps and which it cuts, over the whole vocabulary.

    Args:
        source: name of a distribution in `js/catalogue.js`, such as `"toy"`, `"capital"`, `"once"`.
        method: `"top-k"`, `"top-p"`, `"min-p"`, `"typical"`, `"epsilon"`, `"eta"` or `"top-n-sigma"`.
        value: the rule's value, in its range; `None` is a usual one.
        temperature: T, in [0, 2], applied before the rule.
        rows: how many tokens get a row of their own, 1 to 60.

    Raises:
        ValueError: an unknown name, a value outside its range.
    """

    name = "truncation"
    method = Unicode("top-p").tag(sync=True)
    value = Float(None, allow_none=True).tag(sync=True)
    rows = Int(16).tag(sync=True)

    @validate("method")
    def _check_method(self, proposal):
        return entry("methods", proposal.value)["name"]

    @validate("value")
    def _check_value(self, proposal):
        if proposal.value is not None:
            self._params(proposal.value)
        return proposal.value

    @validate("rows")
    def _check_rows(self, proposal):
        return check_between(proposal, 1, 60, ": the others share one summary row")

    def _params(self, value):
        """The settings shown; `SamplingParams` says what is wrong with a value."""
        method = entry("methods", self.method)
        value = method["start"] if value is None else value
        value = int(value) if float(value).is_integer() and method["setting"] == "top_k" else value
        return SamplingParams(temperature=self.temperature, **{method["setting"]: value})

    def picture(self):
        """The likeliest tokens, kept or cut."""
        return self.likeliest(self._params(self.value))
