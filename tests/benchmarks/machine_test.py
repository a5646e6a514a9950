"""Tests of what the benchmarks read from /proc."""

import os
import time
import unittest

import machine


class ParseTest(unittest.TestCase):
    def test_busy_ticks_leave_out_idle_and_waiting(self):
        stat = "cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
        self.assertEqual(machine.parse_busy_ticks(stat), 87600321)

    def test_the_name_of_a_process_may_hold_brackets_and_spaces(self):
        stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 1100 22 33 44"
        self.assertEqual(machine.parse_process_ticks(stat), 1122)


    def test_cores_are_named_by_family_and_model(self):
        text = "processor : 0\nvendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\n\nprocessor : 1\nmodel : 1\n"
        fields = machine.parse_fields(text)
        self.assertEqual(machine.microarchitecture(fields), "Zen 4")
        self.assertEqual(machine.microarchitecture({**fields, "model": "1"}), "Zen 3")
        self.assertIsNone(machine.microarchitecture({**fields, "vendor_id": "Another"}))
        self.assertIsNone(machine.microarchitecture({"processor": "0"}))

    def test_cores_of_aarch64_are_named_by_implementer_and_part(self):
        self.assertEqual(machine.microarchitecture({"CPU implementer": "0x41", "CPU part": "0xd40"}), "Neoverse V1")
        self.assertEqual(machine.microarchitecture({"CPU implementer": "0x51", "CPU part": "0x001"}), "0x51 0x001")
        self.assertEqual(machine.folder_of({"cpu": "aarch64", "microarchitecture": "Neoverse V1"}), "aarch64-neoverse-v1")


class FolderTest(unittest.TestCase):
    def test_a_folder_has_the_name_of_the_cpu(self):
        self.assertEqual(machine.folder_of({"cpu": "Intel(R) Xeon(R) Processor"}), "intel-xeon-processor")
        self.assertEqual(machine.folder_of({"cpu": "AMD EPYC", "microarchitecture": "Zen 4"}), "amd-epyc-zen-4")

    def test_machines_are_the_same_by_cpu_count_and_instructions(self):
        one = {"cpu": "A", "microarchitecture": None, "cpus": 2, "instructions": ["avx2"], "memory_gb": 8}
        self.assertTrue(machine.is_same(one, {**one, "memory_gb": 9}))
        for name, value in (("cpu", "B"), ("microarchitecture", "Zen 4"), ("cpus", 4), ("instructions", [])):
            self.assertFalse(machine.is_same(one, {**one, name: value}))


class ReadTest(unittest.TestCase):
    def test_own_work_is_seen(self):
        before = machine.cpu_use([os.getpid()])
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        after = machine.cpu_use([os.getpid()])
        self.assertGreaterEqual(after.own - before.own, 0.05)
        self.assertGreater(after.wall, before.wall)

    def test_the_description_names_the_cpu(self):
        self.assertTrue(machine.describe()["cpu"])


if __name__ == "__main__":
    unittest.main()
