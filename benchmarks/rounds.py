"""Rounds of timings: which rounds count, and what they say. This module knows neither peers nor files."""

import math
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class CpuUse:
    """CPU seconds since a fixed start."""

    busy: float  # of all programs on all CPUs, and what the host took away
    own: float  # of the programs that take part in the measurement
    wall: float


@dataclass(frozen=True)
class Round:
    """Calls of one peer between two measurements of what the machine can do."""

    seconds: list  # per call
    peaks: tuple  # GFLOP/s before and after
    reads: tuple  # GB/s before and after; None where nothing is read


# How far the peaks around a quiet round may differ, as a fraction. BracketedRounds in tools/peak allows as much.
PEAK_AGREEMENT = 0.03


def is_bracketed(per_call, seconds, around, agreement=math.inf):
    """Returns whether the rates before and after a round agree, and no call beats both. If not, something disturbed the
    rates. @param per_call  what a call computes or reads, in the unit of the rates  @param seconds  of each call"""
    lower, higher = sorted(around)
    return higher - lower <= agreement * lower and per_call / min(seconds) <= higher


def peak_around_best(all_rounds):
    """Returns the higher of the two peaks around the round with the best call."""
    return max(min(all_rounds, key=lambda one: min(one.seconds)).peaks)


# /proc/stat counts ticks of 1/100 s on each CPU, so a quiet round may look busy for two of them.
TICKS_SECONDS = 0.02


def foreign_seconds(before, after):
    """Returns the CPU seconds that other programs used between two readings."""
    return max(0.0, (after.busy - before.busy) - (after.own - before.own))


def foreign_share(before, after):
    """Returns the share of one CPU that other programs used between two readings. It is above 1 if they used more than
    one."""
    return foreign_seconds(before, after) / (after.wall - before.wall)


def is_quiet(before, after, limit):
    """Returns whether other programs used less than `limit` of one CPU, up to the resolution of ticks."""
    return foreign_seconds(before, after) <= TICKS_SECONDS + limit * (after.wall - before.wall)


def order_of(peers, round_number):
    """Returns the peers in an order that moves by one per round, so that no peer always follows the same one."""
    at = round_number % len(peers)
    return peers[at:] + peers[:at]


def read_fraction(call_bytes, rounds, reads):
    """The part of its memory's read rate that a call reaches. Each round gives the rate of its best call, divided by
    the higher of the read rates before and after it. The result is the median over the rounds. So a neighbour who is
    busy during one of the two reads changes little.
    @param call_bytes  that a call reads
    @param rounds      seconds per call, a list for each round
    @param reads       (before, after) of each round, GB/s"""
    return median(call_bytes / min(samples) * 1e-9 / max(around) for samples, around in zip(rounds, reads, strict=True))


def summarize(rounds):
    """Returns the best and the median seconds per call, from a list of samples for each round."""
    samples = [sample for samples in rounds for sample in samples]
    return {
        "best": min(samples),
        "median": median(samples),
        "rounds": len(rounds),
        "calls": len(samples),
    }
