"""Data sets of the Hugging Face hub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from counterpoint.errors import DataError, reason
from counterpoint.untrusted import shortened


def fetch_dataset(repo: str, patterns: Sequence[str], folder: Path) -> None:
    """The files of a data set that match, into a folder; those which are there are not fetched."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    # Of the library's HTTP client, which is not the same in all its versions.
    client_error = cast(type[Exception], HfHubHTTPError.__bases__[0])
    endpoint = os.environ.get("HF_ENDPOINT")  # now, not when the library was first imported
    page = f"{endpoint or 'https://huggingface.co'}/datasets/{repo}"
    or_by_hand = f"or put its files by hand into {folder}"
    try:
        snapshot_download(
            repo,
            repo_type="dataset",
            allow_patterns=list(patterns),
            local_dir=folder,
            endpoint=endpoint,
        )
    except GatedRepoError:
        raise DataError(
            f"{repo} is given to those who accept its terms: accept them at {page}, log in with "
            f"`hf auth login` and run this again, {or_by_hand}."
        ) from None
    except RepositoryNotFoundError:
        raise DataError(
            f"{page} is not there or not open to you: log in with `hf auth login` and run this "
            f"again, {or_by_hand}."
        ) from None
    except (LocalEntryNotFoundError, OfflineModeIsEnabled):
        raise DataError(
            f"{page} cannot be reached: run this again with a network, {or_by_hand}."
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise DataError(
            f"{page} answers HTTP {status}: run this again later, {or_by_hand}."
        ) from None
    except OSError as error:
        raise DataError(f"{repo} cannot be fetched into {folder}: {reason(error)}.") from None
    except client_error:
        raise DataError(
            f"{page} cannot be reached: run this again with a network, {or_by_hand}."
        ) from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        # Names that lead out of the folder, and answers that are not the hub's.
        why = shortened(error).rstrip(".") or type(error).__name__
        raise DataError(f"{page} gives what makes no sense ({why}); {or_by_hand[3:]}.") from None
