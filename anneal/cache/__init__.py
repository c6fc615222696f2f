"""Plans and kernels on disk for the next process: entries found by their content, and checked before use.

The packages above it decide what is worth keeping and encode it as plain data; this one turns data into files and back.
"""

from anneal.cache.store import (  # isort: skip
    CacheEntry, code_version, digest, disk_key, enabled, entries, folder, load, prune, save, sources,
)  # fmt: skip
