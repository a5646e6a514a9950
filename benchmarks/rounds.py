"""Rounds of timings: which rounds count, and which figures follow from them. This module knows neither peers nor
files."""

import math
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class CpuUse:
    """CPU seconds used since some fixed time."""

    busy: float  # CPU seconds of all programs, plus the time that the host took away
    own: float  # CPU seconds of the programs that take part in the measurement
    wall: float


@dataclass(frozen=True)
class Round:
    """Some calls of one peer, and the rates of the machine measured before and after them."""

    seconds: list  # seconds of each call
    peaks: tuple  # GFLOP/s of the peak before and after the calls
    reads: tuple  # GB/s of reading memory before and after; None if this is not measured


# The largest difference of the two peaks around a quiet round, as a fraction. BracketedRounds in tools/peak has the
# same limit.
PEAK_AGREEMENT = 0.03


def is_bracketed(per_call, seconds, around, agreement=math.inf):
    """Returns whether the rates before and after a round agree, and no call exceeds both.
    @param per_call  what a call computes or reads, in the unit of the rates
    @param seconds  the seconds of each call"""
    lower, higher = sorted(around)
    return higher - lower <= agreement * lower and per_call / min(seconds) <= higher


def peak_around_best(all_rounds):
    """Returns the higher of the two peaks around the round with the best call."""
    return max(min(all_rounds, key=lambda one: min(one.seconds)).peaks)


# /proc/stat counts ticks of 1/100 s on each CPU, so a quiet round may seem busy for two ticks.
TICKS_SECONDS = 0.02


def foreign_seconds(before, after):
    """Returns the CPU seconds that other programs used between the times `before` and `after`."""
    return max(0.0, (after.busy - before.busy) - (after.own - before.own))


def foreign_share(before, after):
    """Returns the share of one CPU that other programs used between the times `before` and `after`. It may be above
    1."""
    return foreign_seconds(before, after) / (after.wall - before.wall)


def is_quiet(before, after, limit):
    """Returns whether other programs used less than `limit` of one CPU, up to the resolution of ticks."""
    return foreign_seconds(before, after) <= TICKS_SECONDS + limit * (after.wall - before.wall)


def order_of(peers, round_number):
    """Returns the peers in an order that moves by one per round, so that no peer always follows the same peer."""
    at = round_number % len(peers)
    return peers[at:] + peers[:at]


def read_fraction(call_bytes, rounds, reads):
    """Returns how fast a call reads memory, as a fraction of the rate at which memory can be read. Each round gives the
    rate of its best call, divided by the higher of the read rates before and after it. The result is the median of the
    rounds, so one disturbed read rate changes little.
    @param call_bytes  the bytes that a call reads
    @param rounds      for each round, a list of seconds per call
    @param reads       for each round, the read rates (before, after) in GB/s"""
    return median(call_bytes / min(samples) * 1e-9 / max(around) for samples, around in zip(rounds, reads, strict=True))


def summarize(rounds):
    """Returns the best and the median seconds per call. `rounds` has a list of samples for each round."""
    samples = [sample for samples in rounds for sample in samples]
    return {
        "best": min(samples),
        "median": median(samples),
        "rounds": len(rounds),
        "calls": len(samples),
    }
