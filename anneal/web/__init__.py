"""The studio: a local page that looks into the compiler, for `anneal web`.

Start in `server.py`: requests enter, records of `anneal/inspect` leave as JSON. The process of the server makes no
tensor; `answers.py` and `jobs.py` are what its child processes run.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later

if TYPE_CHECKING:
    from anneal.web.starting import Options, save, serve
else:
    __getattr__ = opened_later(__name__)
