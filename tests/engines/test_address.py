"""URLs as users write them."""

import pytest

from draftmark.engines import address


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:30000", "https://gpu.example/v1", "http://[::1]:8000", "http://h:65535"]
)
def test_what_can_be_reached(url: str) -> None:
    assert address.split(url).geturl() == url


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:30000", "ftp://h", "http://", "http://:80", "http://h:65536", "http://h:0", "http://h:-1", "http://h:x",
     "http://h h", "http://h\x00", "http://höst", "http://[::1", "localhost", "http://name@h", "http://name:word@h"],
)  # fmt: skip
def test_what_cannot(url: str) -> None:
    with pytest.raises(ValueError, match=r".") as problem:
        address.split(url)
    assert "word" not in str(problem.value).replace("password", "")
