"""The topics of a pipeline at the broker, before it runs. Driver only.

Output topics that are not there are created, with the partitions that the pipeline wants. Source topics that are not
there are an error: nobody would notice a misspelt one otherwise.
"""

from collections.abc import Mapping

from headrace.admin import Admin, NewTopic
from headrace.common.errors import HeadraceError, TopicAlreadyExistsError
from headrace.pipelines.pipeline import Pipeline, PipelineError

_TIMEOUT_MS = 30_000


def prepare_topics(pipeline: Pipeline, bootstrap_servers: str, client: Mapping[str, str]) -> None:
    """Creates what the pipeline writes, and checks what it reads."""
    try:
        with Admin({**client, "bootstrap.servers": bootstrap_servers}) as admin:
            there = set(admin.list_topics(timeout_ms=_TIMEOUT_MS))
            _check_sources(pipeline, there)
            missing = [
                NewTopic(str(topic.name), topic.partitions if topic.partitions is not None else -1)
                for topic in pipeline.topics
                if topic.name not in there
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


def _check_sources(pipeline: Pipeline, there: set[str]) -> None:
    own = {topic.name for topic in pipeline.topics}
    for flow in pipeline.flows:
        for source, topic in flow.sources.items():
            for name in (topic.name or "").split(","):
                if name.strip() and name.strip() not in there | own:
                    raise PipelineError(f"topic {name.strip()!r} is not there, which source {source!r} reads")
