"""Fetch the files that a benchmark needs, and only those. Failures are reported, not raised."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import cast

from counterpoint._util.errors import DataError, reason
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.untrusted import inside, shortened
from counterpoint.data.archives import extract
from counterpoint.data.batch import WORKERS, DownloadReport, Failure, download_all
from counterpoint.data.download import Pause, WantedFile, sha256
from counterpoint.data.sources import (
    ArchiveSource,
    FileSource,
    HubSource,
    ImageSource,
    ManualSource,
    Source,
    addresses,
    begun,
    done,
    get_source,
    needs,
    presence,
)


def fetch_dataset(repo: str, patterns: Sequence[str], folder: Path) -> None:
    """Fetch the matching files of a data set of the Hugging Face hub that are not there yet."""
    from huggingface_hub import snapshot_download

    endpoint = os.environ.get("HF_ENDPOINT")  # now, not when the library was first imported
    try:
        snapshot_download(
            repo,
            repo_type="dataset",
            allow_patterns=list(patterns),
            local_dir=folder,
            endpoint=endpoint,
        )
    except Exception as error:
        page = f"{endpoint or 'https://huggingface.co'}/datasets/{repo}"
        raise _hub_failure(error, repo, page, folder) or error from None


def _hub_failure(error: Exception, repo: str, page: str, folder: Path) -> DataError | None:
    from huggingface_hub import errors

    # The error of the library's HTTP client, which differs between its versions.
    client_error = cast(type[Exception], errors.HfHubHTTPError.__bases__[0])
    by_hand = f"put its files by hand into {folder}"
    log_in = "log in with `hf auth login` and run this again, or"
    unreachable = f"{page} cannot be reached: run this again with a network, or {by_hand}."
    if isinstance(error, errors.GatedRepoError):
        terms = f"accept them at {page}, {log_in} {by_hand}."
        why = f"{repo} needs an account that has accepted its terms: {terms}"
        return DataError("E-DATASET-GATED", why)
    if isinstance(error, errors.RepositoryNotFoundError):
        why = f"{page} does not exist or is private: {log_in} {by_hand}."
        return DataError("E-DATASET-MISSING", why)
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return DataError("E-DATASET-UNREACHABLE", unreachable)
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        why = f"{page} answers HTTP {status}: run this again later, or {by_hand}."
        return DataError("E-DATASET-UNREACHABLE", why)
    if isinstance(error, OSError):
        why = f"{repo} cannot be fetched into {folder}: {reason(error)}."
        return DataError("E-OUTPUT-UNWRITABLE", why)
    if isinstance(error, client_error):
        return DataError("E-DATASET-UNREACHABLE", unreachable)
    if isinstance(error, (ValueError, TypeError, LookupError, AttributeError, RecursionError)):
        # Names that lead out of the folder, and answers that are not the hub's.
        why = shortened(error).rstrip(".") or type(error).__name__
        said = f"{page} sends an invalid answer ({why}); {by_hand}."
        return DataError("E-DATASET-MALFORMED", said)
    return None


def get(
    benchmark: str,
    root: Path,
    needed_images: Callable[[], Iterable[str]],
    *,
    progress: Progress | None = None,
    workers: int = WORKERS,
    images: bool = True,
    pause: Pause | None = None,
) -> DownloadReport:
    """Fetch the annotations first, then the images that they name and that are not there.

    `needed_images` gives paths below the data root; it is called once the annotations are there.
    Nothing is requested if nothing is missing.
    """
    found = needs(benchmark)
    job = _Job(root, DownloadReport(benchmark), progress or Quiet(), workers, pause)
    for source in found.annotations:
        if isinstance(source, FileSource) or not presence(source, root).complete:
            job.fetch(source)
        else:
            job.report.there += 1
    if images and found.images and job.report.complete:
        job.fetch_images(found.images, list(dict.fromkeys(needed_images())))
    for source in found.optional:
        if not presence(source, root).complete:
            job.report.notes.append(instructions(source, root))
    job.report.list_failures(root)
    return job.report


def instructions(source: Source, root: Path) -> str:
    """What to do by hand, and where to put it: one sentence."""
    return f"{source.by_hand} (here: {inside(root, source.target)})."


@dataclass(frozen=True, slots=True)
class _Job:
    root: Path
    report: DownloadReport
    progress: Progress
    workers: int
    pause: Pause | None

    def fetch(self, source: Source) -> None:
        """A whole source; failures go into the report."""
        if isinstance(source, FileSource):
            self._files(source)
        elif isinstance(source, ArchiveSource):
            self._archive(source)
        elif isinstance(source, HubSource):
            self._hub(source)
        elif isinstance(source, ManualSource):
            self.report.by_hand.append(instructions(source, self.root))

    def fetch_images(self, sources: Sequence[Source], needed: Sequence[str]) -> None:
        missing = [name for name in needed if not inside(self.root, name).exists()]
        self.report.there += len(needed) - len(missing)
        for source in sources:
            mine = [name for name in missing if _belongs(name, source)]
            if not mine:
                continue
            if isinstance(source, ImageSource):
                self._images(source, mine)
            elif not done(source, self.root).exists():
                self.fetch(source)
            taken = set(mine)
            missing = [name for name in missing if name not in taken]
            self._still_missing(source, mine)
        for name in missing:
            reason = f"{name}: the catalogue has no source for it."
            self.report.failures.append(Failure(self.root / name, reason))

    def _files(self, source: FileSource) -> None:
        other = get_source(source.or_else) if source.or_else else None
        if other and presence(other, self.root).complete:
            self.fetch(other)
            return
        wanted = self._lacking(source)
        known = len(self.report.failures)
        self._download(wanted, source.id)
        self._note_sums(wanted)
        if other and any(failure.absent for failure in self.report.failures[known:]):
            del self.report.failures[known:]
            self.fetch(other)

    def _lacking(self, source: FileSource) -> list[WantedFile]:
        """A file of another size than the published one is not overwritten."""
        wanted = []
        for file in source.files:
            path = inside(inside(self.root, source.target), file.name)
            if not path.exists():
                wanted.append(WantedFile(path, source.urls(file), file.size, file.sha256))
            elif file.size is not None and path.stat().st_size != file.size:
                reason = f"{path} is not the published file; move it away and run this again."
                self.report.failures.append(Failure(path, reason))
            else:
                self.report.there += 1
        return wanted

    def _images(self, source: ImageSource, names: Sequence[str]) -> None:
        """Images that turn out to be in the other source are fetched from there."""
        wanted = {
            name: WantedFile(
                inside(self.root, name), addresses(source.mirrors, _below(name, source))
            )
            for name in names
        }
        known = len(self.report.failures)
        self._download(list(wanted.values()), source.id)
        absent = {failure.path for failure in self.report.failures[known:] if failure.absent}
        if absent and source.or_else:
            other = get_source(source.or_else)
            assert isinstance(other, ImageSource)
            kept = [f for f in self.report.failures[known:] if f.path not in absent]
            self.report.failures[known:] = kept
            names = [name for name in names if wanted[name].path in absent]
            moved = [f"{other.target}/{_below(name, source)}" for name in names]
            self._images(other, [n for n in moved if not inside(self.root, n).exists()])

    def _archive(self, source: ArchiveSource) -> None:
        """An archive that is in the target already is used, and stays there."""
        folder = inside(self.root, source.target)
        path = inside(folder, source.name)
        brought = path.exists()
        # Without a checksum the size is only approximate.
        size = source.size if source.sha256 else None
        wanted = WantedFile(path, source.mirrors, size, source.sha256)
        if not self._download([wanted], source.id):
            self.report.by_hand.append(
                f"Save {source.mirrors[0]} as {path}, and run this again to have it extracted."
            )
            return
        self._note_sums([wanted])
        try:
            with self._whole(source):
                extract(path, folder)
        except DataError as error:
            self.report.failures.append(Failure(path, str(error)))
        finally:
            if not brought:
                path.unlink(missing_ok=True)

    def _hub(self, source: HubSource) -> None:
        folder = inside(self.root, source.target)
        try:
            with self._whole(source):
                fetch_dataset(source.repo, source.patterns, folder)
                for pattern in source.unpack:
                    for archive in sorted(folder.glob(pattern)):
                        extract(archive, archive.parent)
            self.report.fetched += 1
        except DataError as error:
            self.report.by_hand.append(str(error))

    @contextmanager
    def _whole(self, source: ArchiveSource | HubSource) -> Iterator[None]:
        """Mark a source of many files while it is fetched, so that half of it is not used."""
        mark = begun(source, self.root)
        try:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        except OSError as error:
            raise DataError(
                "E-OUTPUT-UNWRITABLE", f"{mark.parent}: cannot be written: {reason(error)}."
            ) from None
        try:
            yield
        except DataError:
            mark.unlink(missing_ok=True)
            if presence(source, self.root).complete:  # it only looks complete
                mark.touch()
            elif not any(mark.parent.iterdir()):  # leave no empty folder
                mark.parent.rmdir()
            raise
        mark.unlink(missing_ok=True)  # another process may have been quicker
        done(source, self.root).touch()
        if not presence(source, self.root).complete:
            done(source, self.root).unlink()
            raise DataError(
                "E-DOWNLOAD-INCOMPLETE",
                f"{mark.parent} still lacks {' and '.join(source.holds)} after {source.what} was "
                f"fetched: run this again with a network, or put it there by hand.",
            )

    def _download(self, wanted: Sequence[WantedFile], what: str) -> bool:
        """Whether all of it is there now."""
        if not wanted:
            return True
        failures = download_all(wanted, what, self.progress, workers=self.workers, pause=self.pause)
        self.report.fetched += len(wanted) - len(failures)
        self.report.failures += failures
        return not failures

    def _note_sums(self, wanted: Sequence[WantedFile]) -> None:
        """Note the checksums of files that have none in the catalogue, to be compared by users."""
        for item in wanted:
            if item.sha256 is None and item.path.is_file():
                self.report.notes.append(
                    f"{item.path} has the SHA-256 {sha256(item.path)}; it is unchecked, since the "
                    "catalogue has no sum of it."
                )

    def _still_missing(self, source: Source, names: Sequence[str]) -> None:
        """Images that should be in a source and are not."""
        if not isinstance(source, ArchiveSource | HubSource) or not self.report.complete:
            return
        for name in names:
            if not inside(self.root, name).exists():
                reason = f"{name} is not in {source.what}."
                self.report.failures.append(Failure(self.root / name, reason))


def _belongs(name: str, source: Source) -> bool:
    path = PurePosixPath(name)
    pattern = source.names if isinstance(source, ImageSource) else "*"
    return path.is_relative_to(source.target) and fnmatchcase(path.name, pattern)


def _below(name: str, source: Source) -> str:
    return PurePosixPath(name).relative_to(source.target).as_posix()
