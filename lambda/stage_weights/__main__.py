"""Run by a build: where to copy from and to stands in environment variables. Exit codes: 0 done, 1 it cannot be done, 3 it broke off."""

import os
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from stage_weights.copy import PARALLEL, Broken, Copy
from stage_weights.progress import Progress
from stage_weights.sources import HUB, Refused, source_of


def main() -> int:
    """Copy, and say how far it is."""
    config = Config(retries={"total_max_attempts": 8, "mode": "standard"}, max_pool_connections=4 * PARALLEL)
    client = boto3.client("s3", config=config)
    try:
        source = source_of(os.environ["STAGE_FROM"], client, token=os.environ.get("HUB_TOKEN", ""), hub=os.environ.get("HF_ENDPOINT", HUB))
        with Progress() as progress:
            Copy(client, os.environ["STAGE_BUCKET"], os.environ["STAGE_PREFIX"], source, progress).run()
    except Refused as error:
        print(f"stage: it cannot be done: {error}", flush=True)
        return 1
    except (Broken, BotoCoreError, ClientError, OSError) as error:
        print(f"stage: it broke off ({error}); start it again, and it goes on where it was", flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
