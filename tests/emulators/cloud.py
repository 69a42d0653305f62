"""An AWS account on loopback: Lambda, IAM, and S3 with a counter of requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulators.iam import Iam
from emulators.lambda_emulator import REGION, LambdaEmulator
from emulators.lambda_s3 import FlakyS3
from msgspec import Struct

from treadle.primitives.testing.s3 import S3Endpoint, seaweedfs


class Cloud(Struct):
    functions: LambdaEmulator
    iam: Iam
    s3: S3Endpoint
    counter: FlakyS3
    """A proxy before S3."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a user's shell, without credentials and region."""
        return {
            "AWS_ENDPOINT_URL_S3": self.counter.url,
            "AWS_ENDPOINT_URL_LAMBDA": self.functions.endpoint,
            "AWS_ENDPOINT_URL_IAM": self.iam.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def credentials(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": self.s3.access_key, "AWS_SECRET_ACCESS_KEY": self.s3.secret_key}


@contextmanager
def cloud(folder: Path, *, concurrency: int = 4) -> Iterator[Cloud]:
    """An account that ends with the block, including its functions. Their role allows everything."""
    folder.mkdir(exist_ok=True)
    with seaweedfs() as s3, FlakyS3(s3.url, share=0.0) as counter:
        functions, iam = LambdaEmulator(folder, concurrency=concurrency).start(), Iam().start()
        made = Cloud(functions, iam, s3, counter)
        functions.functions.role_environment = {**made.credentials, "AWS_ENDPOINT_URL_S3": counter.url}
        try:
            yield made
        finally:
            functions.stop()
            iam.stop()


def profile(name: str = "aws", sizes: str = "[512]") -> str:
    """A table for `profiles.toml`. `files`: the functions get the package for this machine."""
    return (
        f'[{name}]\nstore = "s3://treadle/work"\nregion = "{REGION}"\nexecutor = "lambda"\n'
        f"[{name}.executors.lambda]\nsizes = {sizes}\nfiles = true\nconcurrency = 4\n"
    )
