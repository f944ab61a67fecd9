"""The file system behind a folder or a URL: fsspec's, or pyarrow's where fsspec has no package for it.

Add here how a store is found and what holds for every store. Keep out what is written there.
"""

from __future__ import annotations

import fsspec
import pyarrow as pa
import pyarrow.fs
from fsspec import AbstractFileSystem
from fsspec.implementations.arrow import ArrowFSWrapper


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
