"""The embedded store: the engine in the caller's process, on the caller's threads.

`open` gives a `Store`; `Store.topic` a `Topic`. The names are those of the HTTP client, so that code moves between the
two by changing one line (operations 5).
"""

from topics.calls.blocking import Topic
from topics.calls.page import Page, Record
from topics.embed.store import Store, open

__all__ = ["Page", "Record", "Store", "Topic", "open"]
