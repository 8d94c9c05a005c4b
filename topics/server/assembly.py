"""The parts of a server as its settings want them."""

from __future__ import annotations

import topics
from topics.server.api.origins import Origins
from topics.server.api.resources.state import SiteOptions
from topics.server.api.site import Site
from topics.server.api.table import route_table
from topics.server.auth.keyfile import begin_keys
from topics.server.descriptors import connections_fit, open_files_max
from topics.server.listener import REFUSALS_MAX, ListenerOptions
from topics.server.runtime.tracing import Tracing
from topics.server.settings import ServerSettings
from topics.server.wire.patience import WireOptions
from topics.store.opened import StoreOptions


def make_site(settings: ServerSettings, options: StoreOptions) -> Site:
    """The site as the settings want it."""
    keys = begin_keys(settings.api_keys, settings.api_keys_file, settings.key_caps)
    origins = Origins(allowed=settings.origins, hosts=settings.host_names, check_host=not keys.is_on)
    return Site(
        route_table(),
        SiteOptions(
            limits=options.limits,
            auto_create=settings.auto_create,
            origins=origins,
            version=topics.__version__,
            held_bytes_max=settings.max_held_bytes,
            unsent_bytes_max=settings.max_unsent_bytes,
            bytes_per_s=settings.body_bytes_per_s,
            backup_bytes_per_s=settings.backup_bytes_per_s,
            head_bytes_max=settings.max_head_bytes,
            head_fields_max=settings.max_head_fields,
            metric_topics_max=settings.max_metric_topics,
            probe_auth=settings.probe_auth,
            watch_sessions_max=settings.max_watch_sessions,
            streams_max=settings.max_streams,
            access_log=settings.access_log,
            slow_request_s=settings.slow_request_ms / 1000,
            tracing=Tracing(version=topics.__version__) if settings.traces else None,
        ),
        keys,
    )


def listener_options(settings: ServerSettings) -> ListenerOptions:
    files_max = open_files_max()
    return ListenerOptions(
        connections_max=min(settings.max_connections, connections_fit(files_max)),
        refusals_max=min(REFUSALS_MAX, (files_max - connections_fit(files_max)) // 4),
        handshake_s=settings.handshake_timeout_ms / 1000,
        wire=WireOptions(
            head_s=settings.head_timeout_ms / 1000,
            idle_s=settings.idle_timeout_ms / 1000,
            byte_rate=settings.body_bytes_per_s,
        ),
    )
