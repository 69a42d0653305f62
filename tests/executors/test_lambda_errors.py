"""Every error in the API reference of Invoke has a reaction: wait, retry, or report to the user."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from botocore.session import get_session

from treadle.executors.aws.invoker import error_of_service
from treadle.executors.functions.invoker import NotRun, Throttled
from treadle.primitives.errors import UsageError

WAITED_FOR = {
    "TooManyRequestsException",
    "EC2ThrottledException",
    "ENILimitReachedException",
    "ENINotReadyException",
    "SubnetIPAddressLimitReachedException",
    "ResourceNotReadyException",
    "ResourceConflictException",
    "SnapStartNotReadyException",
    "CodeArtifactUserPendingException",
}
TRIED_AGAIN = {
    "ServiceException",
    "EC2UnexpectedException",
    "EFSMountConnectivityException",
    "EFSMountTimeoutException",
    "S3FilesMountConnectivityException",
    "S3FilesMountTimeoutException",
    "SnapStartTimeoutException",
}
"""All other errors are for the deployer or the caller."""

SHAPES = get_session().get_service_model("lambda").operation_model("Invoke").error_shapes


@pytest.mark.parametrize(("code", "status"), [(one.name, one.metadata["error"]["httpStatusCode"]) for one in SHAPES])
def test_an_error_of_lambda_is_waited_out_tried_again_or_told(code: str, status: int) -> None:
    said = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    found = error_of_service(ClientError(said, "Invoke"), "f-512")
    wanted = Throttled if code in WAITED_FOR else NotRun if code in TRIED_AGAIN else UsageError
    assert type(found) is wanted
    assert code in str(found) or code == "ResourceNotFoundException"


def test_lambda_says_when_to_come_again() -> None:
    about = {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": "7"}}
    error = ClientError({"Error": {"Code": "TooManyRequestsException"}, "ResponseMetadata": about}, "Invoke")
    found = error_of_service(error, "f-512")
    assert isinstance(found, Throttled)
    assert found.retry_after == 7
