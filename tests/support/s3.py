"""A real S3 server (moto's) over HTTP on this machine: it can be stopped, started again, and told who may do what."""

import http.client
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import pytest

EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
NO_WRITING = {"Effect": "Deny", "Action": "s3:PutObject", "Resource": "*"}


class S3Server:
    """The server; its buckets outlive a stop."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        self._server.stop()

    def variables(self, keys: tuple[str, str] = ("key", "secret")) -> dict[str, str]:
        """The environment by which clients reach it, and no other."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": keys[0],
            "AWS_SECRET_ACCESS_KEY": keys[1],
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_CONFIG_FILE": str(self.home / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.home / "none"),
        }

    def client(self, service: str, **keys: str):
        own = {f"aws_{name}": os.environ[f"AWS_{name.upper()}"] for name in ("access_key_id", "secret_access_key")}
        return self._session.client(service, endpoint_url=self.url, region_name="us-east-1", **own | keys)

    @cached_property
    def _session(self):
        """One for all clients: each session reads the files that describe S3 anew."""
        import boto3

        return boto3.Session()

    @contextmanager
    def with_users(self) -> Iterator["User"]:
        """From now on every request must be signed by a user who may do it."""
        iam = self.client("iam", aws_access_key_id="key", aws_secret_access_key="secret")
        with suppress(iam.exceptions.EntityAlreadyExistsException):
            iam.create_user(UserName="admin")
            iam.create_user(UserName="writer")
        admin = _keys(iam, "admin")
        iam.put_user_policy(UserName="admin", PolicyName="all", PolicyDocument=_policy(EVERYTHING))
        self._check_users(after=0)
        try:
            yield User(self.client("iam", **admin), _keys(self.client("iam", **admin), "writer"))
        finally:
            self._check_users(after=10**9)

    def _check_users(self, *, after: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/moto-api/reset-auth", body=str(after), headers={"Content-Type": "text/plain"})
        assert connection.getresponse().status == 200
        connection.close()


class User:
    """Somebody with keys, and a policy that can be changed."""

    def __init__(self, iam, keys: dict[str, str]) -> None:
        self._iam = iam
        self.keys = (keys["aws_access_key_id"], keys["aws_secret_access_key"])

    def may(self, *statements: dict) -> None:
        self._iam.put_user_policy(UserName="writer", PolicyName="own", PolicyDocument=_policy(*statements))


def _keys(iam, name: str) -> dict[str, str]:
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}


def _policy(*statements: dict) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


@contextmanager
def s3_server(home: Path) -> Iterator[S3Server]:
    """A server with the bucket `vectors`, to which the environment leads."""
    pytest.importorskip("moto", reason="pip install 'moto[server]'")
    s3fs = pytest.importorskip("s3fs", reason="pip install 'layerwise[s3]'")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server(home)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, "retries", 1)
        for name, value in server.variables().items():
            patch.setitem(os.environ, name, value)
        s3fs.S3FileSystem.clear_instance_cache()  # of another server's clients
        client = server.client("s3")
        client.create_bucket(Bucket="vectors")
        client.put_bucket_versioning(Bucket="vectors", VersioningConfiguration={"Status": "Enabled"})
        yield server
    server.stop()
