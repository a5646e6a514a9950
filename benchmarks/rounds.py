"""Rounds of timings: which count, and what they say. Knows neither peers nor files."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class CpuUse:
    """CPU seconds since some start."""

    busy: float  # of all programs on all CPUs, and what the host took away
    own: float  # of the programs that take part in the measurement
    wall: float


# /proc/stat counts ticks of 1/100 s on each CPU, so a quiet round may look busy for two of them.
TICKS_SECONDS = 0.02


def foreign_seconds(before, after):
    """CPU seconds that others used between two readings."""
    return max(0.0, (after.busy - before.busy) - (after.own - before.own))


def is_quiet(before, after, limit):
    """Whether others used less than `limit` of one CPU, beyond what ticks can tell."""
    return foreign_seconds(before, after) <= TICKS_SECONDS + limit * (after.wall - before.wall)


def order_of(peers, round_number):
    """Peers in an order that moves by one a round, so that none always follows the same one."""
    at = round_number % len(peers)
    return peers[at:] + peers[:at]


def summarize(rounds):
    """Best and median seconds of a call over rounds of samples, a list of lists."""
    samples = [sample for samples in rounds for sample in samples]
    return {
        "best": min(samples),
        "median": median(samples),
        "rounds": len(rounds),
        "calls": len(samples),
    }
