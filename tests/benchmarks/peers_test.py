"""fa_peer and naive_peer answer compare.py's requests, and their results equal those of plain
loops. The test needs no numpy."""

import argparse
import ast
import ctypes
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import compare
from cases import SHAPES, make
from peers import worker
from peers.client import Peer, PeerError, reading_library, restart_unlocked, unlocking_library, why_missing

BUILD = os.environ["FA_BUILD"]


def save(path, shape, values):
    """Writes an f32 .npy file."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}f", *values))


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<H", data[8:10])[0]
    shape = ast.literal_eval(data[10 : 10 + length].decode())["shape"]
    return shape, struct.unpack(f"<{math.prod(shape)}f", data[10 + length :])


def rows(values, d):
    return [values[i : i + d] for i in range(0, len(values), d)]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def plain(case, tensors):
    """Returns output and gradients, computed by plain loops and flat as in a file."""
    q, k, v, d_out = (rows(tensors[name], case.d) for name in ("q", "k", "v", "d_out"))
    out = []
    dq, dk, dv = ([[0.0] * case.d for _ in like] for like in (q, k, v))
    scale = 1 / math.sqrt(case.d)
    for index, row in enumerate(q):
        head, i = divmod(index, case.sq)
        batch, n = divmod(head, case.heads)
        first = (batch * case.heads_kv + n * case.heads_kv // case.heads) * case.sk
        kept = case.sk if case.mask == "full" else i + case.sk - case.sq + 1
        weights = [math.exp(scale * dot(row, k[first + j])) for j in range(kept)]
        p = [weight / sum(weights) for weight in weights]
        out.append([sum(p[j] * v[first + j][c] for j in range(kept)) for c in range(case.d)])
        delta = dot(d_out[index], out[-1])
        for j in range(kept):
            ds = p[j] * (dot(d_out[index], v[first + j]) - delta)
            for c in range(case.d):
                dq[index][c] += scale * ds * k[first + j][c]
                dk[first + j][c] += scale * ds * row[c]
                dv[first + j][c] += p[j] * d_out[index][c]
    return {name: sum(map(list, tensor), []) for name, tensor in (("out", out), ("dq", dq), ("dk", dk), ("dv", dv))}


class PeersTest(unittest.TestCase):
    def run_case(self, peer, case, folder):
        """@return the results of the peer, flat"""
        generator = random.Random(case.key)
        query, key = (case.batch, case.heads, case.sq, case.d), (case.batch, case.heads_kv, case.sk, case.d)
        tensors = {}
        for name, shape in (("q", query), ("k", key), ("v", key), ("d_out", query)):
            values = [generator.choice(range(-16, 17)) / 16 for _ in range(math.prod(shape))]
            tensors[name] = values
            save(f"{folder}/{name}.npy", shape, values)
        self.assertEqual(peer.ask("prepare", folder=folder, **case.request()), {"ok": True})
        self.assertEqual(peer.ask("check"), {"ok": True})
        names = ("out",) if case.operation == "forward" else ("dq", "dk", "dv")
        return {name: load(f"{folder}/{name}.npy")[1] for name in names}, plain(case, tensors)

    def test_results_are_those_of_plain_loops(self):
        for name in ("fa", "naive"):
            with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as log:
                peer = Peer(name, BUILD, 1, log)
                for operation in ("forward", "backward"):
                    for mask in ("full", "causal"):
                        case = make("x", (2, 4, 2, 3, 5, 4), operation, "f32", mask, 1)
                        got, want = self.run_case(peer, case, folder)
                        for tensor, values in got.items():
                            self.assertEqual(len(values), len(want[tensor]))
                            for value, expected in zip(values, want[tensor]):
                                self.assertAlmostEqual(value, expected, delta=2e-6, msg=f"{name} {case.key} {tensor}")
                        samples = peer.ask("time", seconds=0.001)["seconds"]
                        self.assertTrue(samples and all(0 < sample < 1 for sample in samples))
                peer.close()

    def test_a_peer_says_what_it_cannot_do_and_goes_on(self):
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as log:
            peer = Peer("naive", BUILD, 1, log)
            case = make("x", (1, 1, 1, 2, 2, 2), "forward", "bf16", "full", 1)
            self.assertEqual(peer.ask("prepare", folder=folder, **case.request()), {"unsupported": "f32 only"})
            with self.assertRaisesRegex(PeerError, "naive: .*q.npy"):
                case = make("x", (1, 1, 1, 2, 2, 2), "forward", "f32", "full", 1)
                peer.ask("prepare", folder=folder, **case.request())
            with self.assertRaisesRegex(PeerError, "unknown request"):
                peer.ask("dance")
            self.assertIn("version", peer.ask("about"))
            peer.close()

    def test_the_read_rate_is_that_of_the_case_s_keys_and_values(self):
        # K has 16 KiB in the first shape and 64 bytes in the second. 64 bytes are less than one thread reads in one
        # step.
        big, small = (1, 1, 1, 1, 64, 64), (1, 1, 1, 1, 2, 8)
        for name in ("fa", "naive"):
            with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as log:
                peer = Peer(name, BUILD, 1, log)
                for sizes, is_read in ((big, True), (small, False), (big, True)):
                    self.run_case(peer, make("x", sizes, "forward", "f32", "full", 1), folder)
                    self.assertEqual(0 < peer.read(0.001) < math.inf, is_read, name)
                peer.close()

    def test_peers_in_python_read_their_memory_by_the_module(self):
        def rate(*sizes):
            buffers = [ctypes.create_string_buffer(size) for size in sizes]
            fake = mock.Mock(memory=lambda: [(ctypes.addressof(buffer), len(buffer)) for buffer in buffers])
            request = {"do": "read", "threads": 2, "seconds": 0.001, "library": reading_library(BUILD)}
            return worker.reply(fake, request)["gbytes"]

        self.assertEqual(rate(64, 64), 0)
        self.assertTrue(0 < rate(64, 1 << 16) < math.inf)

    def fake_driver(self, answers):
        """Returns a driver whose only peer is fa, and the list of requests that the peer gets. `answers` lists the
        peer's answers to each kind of request."""
        asked = []

        def ask(what, **_details):
            asked.append(what)
            return {{"peak": "gflops", "read": "gbytes", "time": "seconds"}[what]: answers[what].pop(0)}

        fake = mock.Mock(ask=ask, read=lambda seconds: ask("read", seconds=seconds)["gbytes"], pid=os.getpid())
        driver = compare.Driver.__new__(compare.Driver)
        driver.peers = {"fa": fake}
        driver.args = argparse.Namespace(rounds=2, tries=2, foreign=math.inf, build=BUILD, quick=False)
        return driver, asked

    def test_decoding_is_read_right_before_and_after_each_timing(self):
        driver, asked = self.fake_driver({"peak": 4 * [100.0], "read": [19.0, 17.0, 15.0, 13.0], "time": 2 * [[0.5]]})
        case = make("F", SHAPES["F"], "forward", "f32", "full", 1)
        timed = driver.time_rounds(case, ["fa"])["fa"]
        self.assertEqual(asked, 2 * ["peak", "read", "time", "peak", "read"])
        reads = [one.reads for one in timed.rounds]
        self.assertEqual(reads, [(19.0, 17.0), (15.0, 13.0)])
        facts = compare.read_facts(case, [one.seconds for one in timed.rounds], reads)
        self.assertEqual(facts["read_gbytes"], 19.0)
        self.assertAlmostEqual(facts["read_fraction"], case.key_value_bytes() / 0.5 * 1e-9 * (1 / 19 + 1 / 15) / 2)

    def test_a_round_whose_peaks_differ_is_repeated(self):
        case = make("B", SHAPES["B"], "forward", "f32", "full", 1)
        peaks = [100.0, 100.0, 100.0, 90.0, 101.0, 102.0]
        driver, asked = self.fake_driver({"peak": list(peaks), "time": [[2.0], [0.9], [1.0]]})
        timed = driver.time_rounds(case, ["fa"])["fa"]
        self.assertEqual(asked, 3 * ["peak", "time", "peak"])
        self.assertEqual(([one.seconds for one in timed.rounds], timed.rejected), ([[2.0], [1.0]], 1))
        self.assertEqual(compare.rounds.peak_around_best(timed.rounds), 102.0)

    def test_quick_reads_no_memory_without_the_library_and_lets_calls_beat_the_product(self):
        case = make("F", SHAPES["F"], "forward", "f32", "full", 1)
        driver, asked = self.fake_driver({"peak": [1e-3, 2e-3, 1e-3, 2e-3], "time": 2 * [[0.5]]})
        driver.args.quick, driver.args.build = True, "nowhere"
        timed = driver.time_rounds(case, ["fa"])["fa"]
        self.assertEqual(asked, 2 * ["peak", "time", "peak"])
        self.assertEqual((len(timed.rounds), timed.rejected), (2, 0))

    def test_fa_measures_the_peak(self):
        with open(os.devnull, "w", encoding="utf-8") as log:
            peer = Peer("fa", BUILD, 1, log)
            answer = peer.ask("peak", dtype="f32", threads=1, seconds=0.01)
            self.assertGreater(answer["gflops"], 0.1)
            peer.close()

    def test_a_peer_that_is_not_built_is_told_of(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("is not built", why_missing("fa", folder, ""))
        self.assertIsNone(why_missing("fa", BUILD, ""))

    def test_mkl_is_unlocked_where_it_is_locked_only(self):
        answer = "import ctypes; print(ctypes.CDLL(None).mkl_serv_intel_cpu_true())"
        environment = {**os.environ, "LD_PRELOAD": unlocking_library(BUILD)}
        answered = subprocess.run([sys.executable, "-c", answer], env=environment, stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(answered.stdout.strip(), "1")
        with mock.patch("importlib.util.find_spec"):  # as if PyTorch were there
            self.assertIn("on this CPU", why_missing("torch_mkl", BUILD, "GenuineIntel"))
            self.assertIsNone(why_missing("torch_mkl", BUILD, "AuthenticAMD"))
            self.assertIn("is not built", why_missing("torch_mkl", "nowhere", "AuthenticAMD"))
            self.assertIsNone(why_missing("torch", "nowhere", "AuthenticAMD"))

    def test_a_program_restarts_itself_unlocked_once(self):
        with mock.patch("os.execve") as begun:
            restart_unlocked("models", BUILD, "GenuineIntel")
            begun.assert_not_called()
            restart_unlocked("models", BUILD, "AuthenticAMD")
            environment = begun.call_args.args[2]
            self.assertEqual(environment["LD_PRELOAD"], unlocking_library(BUILD))
        with mock.patch("os.execve") as begun, mock.patch.dict(os.environ, environment):
            restart_unlocked("models", BUILD, "AuthenticAMD")
            begun.assert_not_called()
        with self.assertRaisesRegex(SystemExit, "models: build the target mkl_unlock"):
            restart_unlocked("models", "nowhere", "AuthenticAMD")

    def test_pytorch_is_not_compared_with_mkl_locked_only(self):
        args = argparse.Namespace(peers=["fa", "torch", "torch_mkl"], build="nowhere", quick=False)
        with mock.patch("compare.why_unusable", return_value=None), mock.patch("compare.offer_torch"), \
                mock.patch("compare.why_missing", side_effect=lambda name, *_: "no library" if name == "torch_mkl" else None):
            with self.assertRaisesRegex(SystemExit, "build the target mkl_unlock first"):
                compare.leave_out_missing(args, "AuthenticAMD")
            args.peers = ["fa", "torch", "torch_mkl"]
            self.assertEqual(compare.leave_out_missing(args, "GenuineIntel"), {"torch_mkl": "no library"})

    def test_quick_leaves_out_what_is_missing_but_fa_and_pytorch(self):
        for missing, refused in (("torch_mkl", False), ("torch", True), ("fa", True)):
            args = argparse.Namespace(peers=["fa", "torch", "torch_mkl"], build="nowhere", quick=True)
            with mock.patch("compare.why_unusable", return_value=None), mock.patch("compare.offer_torch"), \
                    mock.patch("compare.why_missing", side_effect=lambda name, *_: "none" if name == missing else None):
                if refused:
                    with self.assertRaisesRegex(SystemExit, "--quick needs fa and PyTorch"):
                        compare.leave_out_missing(args, "AuthenticAMD")
                else:
                    self.assertEqual(compare.leave_out_missing(args, "AuthenticAMD"), {missing: "none"})


if __name__ == "__main__":
    unittest.main()
