"""Models as web pages: functions leave as plans, WGSL and weights, and a small runtime runs them in any browser.

`export` writes a page, `fit` says what a profile of a browser's adapter would make of one.
"""

from anneal.pages.exporting import DEFAULT, ExportedPage, Fit, export, fit
from anneal.pages.program import PROFILES, DeviceProfile, page_device, profile
from anneal.pages.recipes import PageRecipe, arguments_of, of_gpt2, of_onnx, of_text, of_training

__all__ = [
    "DEFAULT", "PROFILES", "DeviceProfile", "ExportedPage", "Fit", "PageRecipe", "arguments_of", "export", "fit",
    "of_gpt2", "of_onnx", "of_text", "of_training", "page_device", "profile",
]  # fmt: skip
