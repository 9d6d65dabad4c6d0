"""jobs.yaml -> `ClusterSpec`, or one `ConfigError` with every complaint.

The way of a file, each step in its own module:

1. `document`: YAML text -> plain data, and where each key and value stands
2. `model`: the keys there are; `values`: how a duration, a size, a name is written
3. `complaints`: what the model refused -> `file:line:col: path: what is wrong; what to write instead`
4. `resolve`: defaults merged, relations between keys checked, instances counted out -> `JobSpec`s

`reference` makes the JSON Schema and `docs/jobs-yaml.md` from the model.
Must never touch Redis or a process; reads one file and, where told to expand it, the environment it is given.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from orchestrator.config import document as yaml_document
from orchestrator.config.complaints import complaints_of, path_of
from orchestrator.config.document import Complaint, Document
from orchestrator.config.model import File, Job, JobDefaults
from orchestrator.config.resolve import Resolved, resolve
from orchestrator.core.spec import ClusterSpec
from orchestrator.errors import ConfigError

MAX_BYTES = 10_000_000
"""Of one jobs.yaml: some 50,000 jobs. What is larger is not one."""
MAX_SHOWN = 50
"""Complaints that are written out; a file that is no jobs.yaml at all could have thousands."""


def load(path: Path, environ: Mapping[str, str]) -> ClusterSpec:
    """Read a jobs.yaml.

    Args:
        path: The file; complaints call it what the caller calls it.
        environ: Where `${X}` is looked up.

    Raises:
        ConfigError: With every complaint, in the order of the file.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; create it, or name another file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a directory; name the file, such as {path / 'jobs.yaml'}") from None
    except PermissionError:
        raise ConfigError(f"{path}: may not be read by this user; change its owner or mode") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_BYTES} bytes; this is no jobs.yaml")
    return parse(_decoded(content, path), str(path), environ, source=path.absolute())


def parse(text: str, name: str, environ: Mapping[str, str], *, source: Path | None = None) -> ClusterSpec:
    """Read the text of a jobs.yaml.

    Args:
        text: YAML.
        name: How complaints call it.
        environ: Where `${X}` is looked up.
        source: Absolute path of the file it comes from; relative paths in it are relative to its
            directory, without a file to the working directory.

    Raises:
        ConfigError: With every complaint, in the order of the file.
    """
    with _without_collector():
        return _parsed(text, name, environ, source)


def _parsed(text: str, name: str, environ: Mapping[str, str], source: Path | None) -> ClusterSpec:
    document = yaml_document.read(text, name)
    if document.data is None:
        raise _error(document, document.complaints)
    directory = source.parent if source else Path.cwd()
    try:
        file = File.model_validate(document.data, context={"environ": environ})
    except ValidationError as error:
        sound = _resolve_what_is_sound(error, document, environ, directory)
        raise _error(document, [*document.complaints, *complaints_of(error, document), *sound.complaints]) from None
    resolved = resolve(file.jobs, file.defaults, document, directory)
    if complaints := [*document.complaints, *resolved.complaints]:
        raise _error(document, complaints)
    return ClusterSpec(
        cluster=file.cluster,
        jobs=resolved.jobs,
        redis=file.redis,
        node=file.node.name,
        node_tags=file.node.tags,
        max_running=file.node.max_running,
        source=str(source) if source else "",
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the collector of cycles away: a large file makes many objects and no cycle, and each look costs."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _resolve_what_is_sound(
    error: ValidationError, document: Document, environ: Mapping[str, str], directory: Path
) -> Resolved:
    """Check the relations of those jobs that are sound in themselves, so that all complaints come at once."""
    broken = [path_of(detail, document)[:2] for detail in error.errors(include_url=False)]
    data = cast("dict[str, dict[str, object]]", document.data) if isinstance(document.data, dict) else {}
    if any(path[:1] in {("defaults",), ()} for path in broken) or not isinstance(data.get("jobs"), dict):
        return Resolved((), ())
    context = {"environ": environ}
    defaults = JobDefaults.model_validate(data.get("defaults", {}), context=context)
    jobs = {
        name: Job.model_validate(job, context=context)
        for name, job in data["jobs"].items()
        if ("jobs", name) not in broken
    }
    return resolve(jobs, defaults, document, directory)


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode(errors="replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise ConfigError(f"{path}:{line}:{column}: is not UTF-8; save the file as UTF-8") from None


def _error(document: Document, complaints: list[Complaint]) -> ConfigError:
    ordered = sorted(dict.fromkeys(complaints))
    rendered = [document.render(complaint) for complaint in ordered[:MAX_SHOWN]]
    if len(ordered) > MAX_SHOWN:
        rendered.append(f"{document.name}: and {len(ordered) - MAX_SHOWN} more")
    return ConfigError(*rendered)
