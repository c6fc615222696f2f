"""What was compiled, kept on disk for the next process: checked entries, found by content, never trusted blindly.

The rooms above decide what is worth keeping and encode it as plain data; this one turns data into files and back.
"""

from anneal.cache.store import Entry, disk_key, enabled, entries, folder, load, prune, save
from anneal.cache.version import code_version

__all__ = ["Entry", "code_version", "disk_key", "enabled", "entries", "folder", "load", "prune", "save"]
