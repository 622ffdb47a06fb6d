"""The bandwidth is measured, not assumed."""

from draftmark.machine.bandwidth import measure_host_bandwidth


def test_the_host_reads_at_a_plausible_rate() -> None:
    measured = measure_host_bandwidth()
    assert 5e8 < measured.low <= measured.bytes_per_second <= measured.high < 2e12
    assert "bytes read" in measured.method
