"""Models as web pages: functions leave as plans, WGSL and weights, and a small runtime runs them in any browser.

`export` writes a page, `fit` says what a profile of a browser's adapter would make of one.
"""

from anneal.pages.exporting import Exported, export
from anneal.pages.profiles import PROFILES, Profile, profile

__all__ = ["PROFILES", "Exported", "Profile", "export", "profile"]
