"""What previews judge with: pairs of slices out of the catalogue, into which nothing is written."""

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.baselines import load_noise, noise_places
from firstdrift.comparison.clock import Clock
from firstdrift.comparison.report import SliceResult
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.judgement import Finding, SliceJudgement


class PreviewStorage:
    """The part of a storage (`firstdrift.comparison.session.Storage`) that all previews share."""

    def __init__(self, session: Session, baseline: int | None) -> None:
        """Look up where the noise of a healthy run is.

        Raises:
            SettingsError: that comparison is gone.
        """
        self.session = session
        self._noise_places = noise_places(session, baseline)

    def kept(self, position: int) -> SliceJudgement | None:
        """Return what was said of a pair before: it is to be judged anew."""
        del position
        return None

    def noise(self, golden: Coordinates) -> Noise:
        """Return what a healthy run shows of a golden slice."""
        return load_noise(self.session, self._noise_places, golden)

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        """Keep nothing."""

    def settle(self, position: int, bad: Finding) -> None:
        """Change nothing that was kept."""
