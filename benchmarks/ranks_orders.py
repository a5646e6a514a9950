"""Predicts the speed of two orders in which up to 1024 ranks may sum dK and dV: benchmarks/ranks_orders.py FA

In order (a), sums travel through the ranks in the order of the rows. In order (b), there are at most 64 fixed chunks of
rows. The sum of each chunk starts at zero, and these sums are added in the order of chunks (docs/ranks.md). Both orders
are simulated as src/ranks/plan/sum_schedule.cc does it. A block is one part of rows, one query head and one chunk of
keys. List scheduling orders the blocks of a unit, which is a few key heads, and units follow one another. In (b), each
chunk of rows has one chain of sums for a chunk of keys. The chain's sum goes to the rank that holds most of these keys.
The additions of (b) cost nothing in the simulation. `fa plan` predicts (a) too, which shows whether the two models
agree.
"""

import heapq
import json
import subprocess
import sys

RANKS = (8, 16, 32, 64, 128, 256, 512, 1024)
ROWS, HEADS_IN_FLIGHT, HEADS, HEADS_KV, D = 1 << 14, 4, 32, 8, 128
WORKERS, FLOPS, NETWORK, LATENCY = 64, 64e9, 12.5e9, 5e-6
ROW_CHUNKS = 64
MOST_SIMULATED = 256  # the most ranks for which this program simulates order (a); for more, `fa plan` alone predicts it

# These constants equal those of src/tiling (sum_schedule, backward_shape, tile_shape, row_cut).
COLUMN_KEYS, TILE_ROWS, STRIP_ROWS, KEY_STEP, OVERHEAD_GROUPS = 128, 128, 32, 8, 2
CHUNKS_PER_PART, FEW_CHUNKS_PER_PART, MOST_BLOCKS = 6, 3, 1 << 24
GROUP = HEADS // HEADS_KV
PAIR_SECONDS = 10 * D / (FLOPS * WORKERS)
KEY_BYTES = HEADS_IN_FLIGHT * 4 * 2 * D
UNITS = HEADS_KV // HEADS_IN_FLIGHT
AT_ONCE = -(-WORKERS // HEADS_IN_FLIGHT)


def overhead(rows):
    return OVERHEAD_GROUPS / (rows // STRIP_ROWS * (COLUMN_KEYS // KEY_STEP))


def key_chunks(ranks):
    """Cuts all keys into chunks of whole columns. @return (begin, end) of each chunk, from the last chunk to the first,
    as under a causal mask"""
    steps, parts = ROWS * ranks // COLUMN_KEYS // AT_ONCE, 2 * ranks
    count = min(steps, min(max(MOST_BLOCKS // (parts * GROUP), parts), CHUNKS_PER_PART * parts))
    ends = [steps * (c + 1) // count * AT_ONCE * COLUMN_KEYS for c in range(count)]
    return list(zip([0, *ends[:-1]], ends))[::-1]


def tile_rows(rows, columns, few_chunks):
    if not few_chunks:
        return TILE_ROWS
    at_once = min(columns, AT_ONCE)

    def use(tile):
        steps = columns * -(-rows // tile) / at_once
        return steps / (steps + at_once - 1) / (1 + overhead(tile))

    return TILE_ROWS // 2 if use(TILE_ROWS // 2) > use(TILE_ROWS) else TILE_ROWS


def kept_pairs(begin, end, key_begin, key_end):
    """Counts the pairs that a causal mask keeps, of rows [begin, end) and keys [key_begin, key_end). A row keeps the
    keys up to its own number.
    """
    def below(row):  # counts the pairs of the rows before `row`
        full = max(0, row - key_end)
        edge = max(0, min(row, key_end) - key_begin)
        return full * (key_end - key_begin) + edge * (edge + 1) // 2
    return below(end) - below(begin)


def predict(begin, end, keys, few_chunks):
    """@return two times in seconds: how long a block keeps the workers of a rank busy, and the delay of the block's
    last column
    """
    pairs, length = kept_pairs(begin, end, *keys), keys[1] - keys[0]
    columns = -(-length // COLUMN_KEYS)
    at_once = min(columns, AT_ONCE)
    tile = tile_rows(end - begin, columns, few_chunks)
    busy = min(at_once * HEADS_IN_FLIGHT, WORKERS)
    cost = (pairs + TILE_ROWS * COLUMN_KEYS) * (1 + overhead(tile)) / (1 + overhead(TILE_ROWS)) * HEADS_IN_FLIGHT
    full = pairs >= (end - begin) * length
    late = (at_once - 1) * (-(-columns // at_once) if full else 0.5)
    return cost / busy * PAIR_SECONDS * WORKERS, late * tile * COLUMN_KEYS * PAIR_SECONDS * WORKERS


class Blocks:
    """The blocks of the given parts of rows, and the chains in which the sums of blocks are added."""

    def __init__(self, ranks, parts, chain_of):
        """@param chain_of  chain_of(part) returns the number of the part's chain; the parts of a chain are
        neighbours"""
        self.rank, self.head, self.seconds, self.late = [], [], [], []
        self.in_chunk, self.in_rows, self.waits, self.on_the_way = [], [], [], []
        rows = ROWS // 2
        chunks = key_chunks(ranks)
        few_chunks = len(chunks) < FEW_CHUNKS_PER_PART * 2 * ranks
        self.sent_bytes = {}
        before = {}
        for keys in chunks:
            costs = {p: predict(p * rows, (p + 1) * rows, keys, few_chunks) for p in parts if keys[0] < (p + 1) * rows}
            message = LATENCY + KEY_BYTES * (keys[1] - keys[0]) / NETWORK
            last = {}
            for head in range(GROUP):
                for part, (seconds, late) in costs.items():
                    block, chain = len(self.rank), chain_of(part)
                    rank = min(part, 2 * ranks - 1 - part)
                    self.rank.append(rank)
                    self.head.append(head)
                    self.seconds.append(seconds)
                    self.late.append(late)
                    self.in_chunk.append(-1)
                    self.in_rows.append(-1)
                    self.waits.append(0)
                    self.on_the_way.append(0.0)
                    if chain in last:
                        sender = last[chain]
                        self.in_chunk[sender] = block
                        self.waits[block] += 1
                        if self.rank[sender] != rank:
                            self.on_the_way[sender] = self.late[sender] + message
                            self.add_bytes(self.rank[sender], keys)
                    if (head, part) in before:
                        self.in_rows[before[head, part]] = block
                        self.waits[block] += 1
                    before[head, part] = last[chain] = block
            self.ended(last, keys, ranks)

    def add_bytes(self, rank, keys, times=1):
        self.sent_bytes[rank] = self.sent_bytes.get(rank, 0) + times * KEY_BYTES * (keys[1] - keys[0])

    def ended(self, last, keys, ranks):
        """Called when the chains of a chunk of keys have ended. It does nothing here, and subclasses override it."""

    def paths(self):
        path = [0.0] * len(self.rank)
        for block in range(len(path) - 1, -1, -1):
            behind = 0.0
            if self.in_chunk[block] >= 0:
                behind = self.on_the_way[block] + path[self.in_chunk[block]]
            if self.in_rows[block] >= 0:
                behind = max(behind, path[self.in_rows[block]])
            path[block] = self.seconds[block] + behind
        return path

    def order(self):
        """Orders the blocks by list scheduling. A free rank takes a ready block of the earliest head. Of these blocks
        it takes the one with the longest path."""
        path, waits, ready_at = self.paths(), list(self.waits), [0.0] * len(self.rank)
        ready, running, events, made, ordered = {rank: [] for rank in self.rank}, {}, [], 0, []

        def release(block, at):
            nonlocal made
            ready_at[block] = max(ready_at[block], at)
            waits[block] -= 1
            if waits[block] <= 0:
                heapq.heappush(events, (ready_at[block], made, block, self.rank[block]))
                made += 1

        for block, count in enumerate(self.waits):
            if count == 0:
                release(block, 0.0)
        while events:
            at, _, block, rank = heapq.heappop(events)
            if block >= 0:
                heapq.heappush(ready[rank], (self.head[block], -path[block], block))
            else:
                done = running.pop(rank)
                if self.in_chunk[done] >= 0:
                    release(self.in_chunk[done], at + self.on_the_way[done])
                if self.in_rows[done] >= 0:
                    release(self.in_rows[done], at)
            if rank in running or not ready[rank]:
                continue
            block = heapq.heappop(ready[rank])[2]
            running[rank] = block
            ordered.append(block)
            heapq.heappush(events, (at + self.seconds[block], made, -1, rank))
            made += 1
        return ordered

    def predicted_seconds(self):
        """Returns the larger of two times in seconds: the time of all units, and the time in which the busiest rank
        sends its sums.
        """
        ordered = self.order()
        ends = dict.fromkeys(self.rank, 0.0)
        for _ in range(UNITS):
            free, arrived = dict(ends), [0.0] * len(self.rank)
            for block in ordered:
                rank = self.rank[block]
                end = free[rank] = max(free[rank], arrived[block]) + self.seconds[block]
                if self.in_chunk[block] >= 0:
                    arrived[self.in_chunk[block]] = end + self.on_the_way[block]
                ends[rank] = max(ends[rank], end + self.late[block])
        wire = UNITS * max(self.sent_bytes.values(), default=0) / NETWORK
        return max(max(ends.values()), wire)


class ChunkSums(Blocks):
    """Order (b): each chunk of rows sends its sum for a chunk of keys to the rank that holds most of these keys."""

    def ended(self, last, keys, ranks):
        parts = 2 * ranks
        chunks_of_part = max(1, ROW_CHUNKS // parts)
        for block in last.values():
            if self.rank[block] != min(keys[0] // (ROWS // 2), parts - 1 - keys[0] // (ROWS // 2)):
                self.add_bytes(self.rank[block], keys, chunks_of_part)


def efficiency(ranks, seconds):
    """Returns the fraction of the ranks' time in which they compute products."""
    rows = ROWS * ranks
    return GROUP * HEADS_KV * kept_pairs(0, rows, 0, rows) * PAIR_SECONDS / (ranks * seconds)


def travelling(ranks):
    """Simulates order (a). @return the efficiency, and the GiB that the busiest rank sends"""
    blocks = Blocks(ranks, range(2 * ranks), lambda part: 0)
    return efficiency(ranks, blocks.predicted_seconds()), UNITS * max(blocks.sent_bytes.values()) / 2**30


def chunked(ranks):
    """Simulates order (b). Ranks that share no chunk of rows do not wait for each other. @return the same as
    travelling()"""
    parts = 2 * ranks
    shared = max(1, parts // ROW_CHUNKS)  # number of parts per chunk of rows
    seconds = sent = 0
    for first in range(0, ranks, shared):
        own = range(first, first + shared)
        blocks = ChunkSums(ranks, [*own, *(parts - 1 - part for part in reversed(own))], lambda part: part // shared)
        seconds = max(seconds, blocks.predicted_seconds())
        sent = max(sent, UNITS * max(blocks.sent_bytes.values(), default=0))
    return efficiency(ranks, seconds), sent / 2**30


def planned(fa, ranks):
    """Returns what the library predicts for order (a)."""
    rows = ROWS * ranks
    words = [fa, "plan", "backward", "--shape", f"1,{HEADS},{HEADS_KV},{rows},{rows},{D}", "--causal", "--dtype", "bf16",
             "--cores", str(WORKERS), "--isa", "avx512", "--ranks", str(ranks), "--strategy", "sequence",
             "--heads-in-flight", str(HEADS_IN_FLIGHT), "--json"]
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)["efficiency"]


def table(rows):
    """@param rows  one tuple per number of ranks: (ranks, planned (a), simulated (a) or None, simulated (b))"""
    lines = ["| ranks | (a), `fa plan` | (a), this model | GiB sent per rank | (b), this model | GiB sent per rank |",
             "|---:" * 6 + "|"]
    for ranks, plan, one, other in rows:
        cells = [f"{100 * one[0]:.1f} % | {one[1]:.1f}" if one else "– | –", f"{100 * other[0]:.1f} % | {other[1]:.1f}"]
        lines.append(f"| {ranks} | {100 * plan:.1f} % | " + " | ".join(cells) + " |")
    return lines


def main(words):
    if len(words) != 1:
        raise SystemExit(__doc__)
    rows = []
    for ranks in RANKS:
        one = travelling(ranks) if ranks <= MOST_SIMULATED else None
        rows.append((ranks, planned(words[0], ranks), one, chunked(ranks)))
        print(table(rows)[-1], file=sys.stderr)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main(sys.argv[1:])
