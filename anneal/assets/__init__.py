"""Data: what ships inside the package, and what is downloaded once, each checked against its SHA-256.

`load` reads a bundled file; `fetch` gives the path of one that is pinned in `ASSETS`, downloading it if need be.
"""

from anneal.assets._files import ASSETS, BUNDLED, Asset, BundledFile, fetch, load, location, verify
