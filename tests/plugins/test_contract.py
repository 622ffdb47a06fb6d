"""The contract holds for the published wheels that are supported, and for nothing else."""

from pathlib import Path

import pytest

from draftmark.plugins.contract import SUPPORTED, Broken, check

PUBLISHED = Path(__file__).parent.parent / "data" / "sglang"


def source(version: str) -> str:
    return (PUBLISHED / version / "triton_backend.py.txt").read_text()


@pytest.mark.parametrize("version", sorted(SUPPORTED))
def test_the_published_wheel_fulfils_it(version: str) -> None:
    assert check(version, source(version)) == SUPPORTED[version]


def test_every_published_source_is_tested() -> None:
    assert {path.name for path in PUBLISHED.iterdir() if path.is_dir()} == set(SUPPORTED)


def test_another_version_is_refused_by_name() -> None:
    with pytest.raises(Broken, match=r"version 0\.5\.16 was not checked; supported are 0\.5\.15\.post1, 0\.5\.23"):
        check("0.5.16", source("0.5.23"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("class TritonAttnBackend(", "class TritonBackend(", "no class TritonAttnBackend"),
        ("self.use_verify_splitkv = (", "self.use_split = (", "does not set use_verify_splitkv"),
        ("self.use_mla = ", "self.mla = ", "does not set use_mla"),
        ("def forward_extend(", "def forward_prefill(", "no forward_extend"),
        ("max_bs=self.req_to_token_pool.size,", "", "0 calls with max_bs"),
        (
            "                max_bs=self",
            "                window=1,\n                max_bs=self",
            "['window'] more or less",
        ),
        ("                self.forward_metadata.max_extend_len,\n", "                length,\n", "passes length"),
        (
            "            k_descale,\n            v_descale,\n            layer",
            "            v_descale,\n            k_descale,\n            layer",
            "the extend call passes 16 arguments in another order",
        ),
        (
            "            page_size=self.page_size,\n        )\n        return o",
            "        )\n        return o",
            "0 calls with page_size",
        ),
        ("forward_mode.is_target_verify()", "forward_mode.is_verify()", "does not use is_target_verify"),
    ],
)
def test_a_changed_source_is_refused_with_the_reason(old: str, new: str, said: str) -> None:
    changed = source("0.5.15.post1")
    assert old in changed
    with pytest.raises(Broken) as reason:
        check("0.5.15.post1", changed.replace(old, new))
    assert said in str(reason.value)
