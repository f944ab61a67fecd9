"""The file system behind a folder or a URL: fsspec's, or pyarrow's where fsspec has no package for it.

Add here how a store is found and what holds for every store. Keep out what is written there.
"""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlsplit

import fsspec
import pyarrow as pa
import pyarrow.fs
from fsspec import AbstractFileSystem
from fsspec.implementations.arrow import ArrowFSWrapper

from collectors.secret_texts import FEWEST_CHARACTERS, Secrets

# What the clients of stores take from the environment and send, or sign with.
SECRET_VARIABLES = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"),
    *("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_CLIENT_SECRET"),
)


def file_system(path: str) -> tuple[AbstractFileSystem, str]:
    """The file system behind a path or URL, and the path on it. ImportError or ValueError where no package serves it.

    Where fsspec's own package for a protocol is not installed, pyarrow carries one for S3, Google Cloud, Azure, HDFS.
    """
    try:
        system, root = fsspec.core.url_to_fs(path)
        return system, root
    except ImportError as missing:
        try:
            found, root = pyarrow.fs.FileSystem.from_uri(path)
        except pa.ArrowInvalid as refusal:
            raise missing if "Unrecognized filesystem" in str(refusal) else refusal from None
        return ArrowFSWrapper(found), root


def secrets_of(url: str) -> Secrets:
    """What a store, or its client, may repeat in an error and no message may have: of the URL and the environment."""
    secrets = Secrets()
    parts = urlsplit(url)
    secrets.add(parts.password, user=parts.username)
    for text in (*dict(parse_qsl(parts.query)).values(), *(os.environ.get(name, "") for name in SECRET_VARIABLES)):
        secrets.add(text if len(text) >= FEWEST_CHARACTERS else None)
    return secrets
