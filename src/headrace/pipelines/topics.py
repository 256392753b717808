"""Prepares the topics of a pipeline before it runs. Driver only.

Creates missing output topics with the number of partitions that the pipeline names. A missing source topic is an error:
otherwise a misspelled name would go unnoticed.
"""

from collections.abc import Mapping

from headrace.admin import Admin, NewTopic
from headrace.common.errors import HeadraceError, TopicAlreadyExistsError
from headrace.pipelines.pipeline import Pipeline, PipelineError

_TIMEOUT_MS = 30_000


def prepare_topics(pipeline: Pipeline, bootstrap_servers: str, client: Mapping[str, str]) -> None:
    """Creates missing output topics and checks that all source topics exist."""
    try:
        with Admin({**client, "bootstrap.servers": bootstrap_servers}) as admin:
            existing = set(admin.list_topics(timeout_ms=_TIMEOUT_MS))
            _check_sources(pipeline, existing)
            missing = [
                NewTopic(str(topic.name), topic.partitions if topic.partitions is not None else -1)
                for topic in pipeline.topics
                if topic.name not in existing
            ]
            if missing:
                results = admin.create_topics(missing, raise_errors=False, timeout_ms=_TIMEOUT_MS)
                for name, result in results.items():
                    if result.error is not None and not isinstance(result.error, TopicAlreadyExistsError):
                        raise PipelineError(f"cannot create topic {name}: {result.error}")
    except PipelineError:
        raise
    except HeadraceError as error:
        raise PipelineError(f"broker at {bootstrap_servers}: {error}") from error


def _check_sources(pipeline: Pipeline, existing: set[str]) -> None:
    outputs = {topic.name for topic in pipeline.topics}
    for flow in pipeline.flows:
        for source, topic in flow.sources.items():
            for name in (topic.name or "").split(","):
                if name.strip() and name.strip() not in existing | outputs:
                    raise PipelineError(f"topic {name.strip()!r} of source {source!r} does not exist")
