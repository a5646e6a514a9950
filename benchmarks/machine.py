"""What Linux says about this machine and about the programs that are busy on it."""

import os
import platform
import time

from rounds import CpuUse

TICK = 1 / os.sysconf("SC_CLK_TCK")


def parse_busy_ticks(stat):
    """Ticks of all CPUs that are not idle, from the text of /proc/stat: user, nice, system, irq, softirq and steal."""
    ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
    return user + nice + system + irq + softirq + steal


def parse_process_ticks(stat):
    """User and system ticks of a process, from the text of /proc/PID/stat. Its name may hold spaces and brackets."""
    fields = stat.rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def read(path):
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def cpu_use(pids):
    """CPU use until now; `pids` are the programs that take part in the measurement."""
    busy = parse_busy_ticks(read("/proc/stat"))
    own = sum(parse_process_ticks(read(f"/proc/{pid}/stat")) for pid in pids)
    return CpuUse(busy * TICK, own * TICK, time.monotonic())


def cpu_name():
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe():
    lines = read("/proc/cpuinfo").splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "").split()  # x86-64, aarch64
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "asimddp", "bf16", "i8mm")
    return {
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "instructions": [flag for flag in wanted if flag in flags],
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "system": f"{platform.system()} {platform.release()}",
    }
