"""Asks Linux about this machine, and about the programs that are busy on it."""

import os
import platform
import re
import time

from rounds import CpuUse

TICK = 1 / os.sysconf("SC_CLK_TCK")


def parse_busy_ticks(stat):
    """Returns the ticks for which all CPUs together were busy (user, nice, system, irq, softirq and steal), from the
    text of /proc/stat."""
    ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
    return user + nice + system + irq + softirq + steal


def parse_process_ticks(stat):
    """Returns the user and system ticks of a process, from the text of /proc/PID/stat. The process' name may contain
    spaces and brackets."""
    fields = stat.rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def read(path):
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def cpu_use(pids):
    """Returns the CPU time used until now. `pids` are the processes that take part in the measurement."""
    busy = parse_busy_ticks(read("/proc/stat"))
    own = sum(parse_process_ticks(read(f"/proc/{pid}/stat")) for pid in pids)
    return CpuUse(busy * TICK, own * TICK, time.monotonic())


# Names of x86 cores by family and model, because clouds call all of AMD's CPUs "AMD EPYC".
MICROARCHITECTURES = {
    ("AuthenticAMD", 25): (((0x00, 0x0F), "Zen 3"), ((0x10, 0x1F), "Zen 4"), ((0x20, 0x5F), "Zen 3"),
                           ((0x60, 0x7F), "Zen 4"), ((0xA0, 0xAF), "Zen 4")),
    ("AuthenticAMD", 26): (((0x00, 0x2F), "Zen 5"), ((0x40, 0x4F), "Zen 5"), ((0x50, 0x5F), "Zen 6"),
                           ((0x60, 0x7F), "Zen 5"), ((0x90, 0xAF), "Zen 6"), ((0xC0, 0xCF), "Zen 6")),
    ("GenuineIntel", 6): (((85, 85), "Skylake-SP or Cascade Lake"), ((106, 106), "Ice Lake-SP"),
                          ((143, 143), "Sapphire Rapids"), ((207, 207), "Emerald Rapids"),
                          ((173, 174), "Granite Rapids")),
}
# Names of aarch64 cores by implementer and part, because /proc/cpuinfo names no model there.
PARTS = {
    ("0x41", "0xd08"): "Cortex-A72", ("0x41", "0xd0c"): "Neoverse N1", ("0x41", "0xd40"): "Neoverse V1",
    ("0x41", "0xd49"): "Neoverse N2", ("0x41", "0xd4f"): "Neoverse V2", ("0x41", "0xd84"): "Neoverse V3",
    ("0x41", "0xd8e"): "Neoverse N3", ("0x48", "0xd01"): "TSV110", ("0x48", "0xd02"): "TSV200",
    ("0xc0", "0xac3"): "Ampere-1", ("0xc0", "0xac4"): "Ampere-1A",
}


def parse_fields(cpuinfo):
    """Returns the fields of the first CPU in the text of /proc/cpuinfo."""
    pairs = (line.split(":", 1) for line in cpuinfo.split("\n\n", 1)[0].splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def microarchitecture(fields):
    """Returns the name of the cores. For unknown cores, returns None on x86-64, and the implementer and part on
    aarch64."""
    if "CPU part" in fields:
        part = fields.get("CPU implementer", ""), fields["CPU part"]
        return PARTS.get(part, " ".join(part))
    try:
        known, model = MICROARCHITECTURES[fields["vendor_id"], int(fields["cpu family"])], int(fields["model"])
    except (KeyError, ValueError):
        return None
    return next((name for (first, last), name in known if first <= model <= last), None)


def text_of(description):
    """Returns the name of a CPU and, if known, of its cores: "AMD EPYC (Zen 4)"."""
    cores = description.get("microarchitecture")
    return description["cpu"] + (f" ({cores})" if cores else "")


def folder_of(description):
    """Returns the name of the folder with a CPU's results: "amd-epyc-zen-4"."""
    words = " ".join(filter(None, (description["cpu"], description.get("microarchitecture"))))
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm|c)\)", " ", words.lower())).strip("-")


def is_same(description, other):
    """Returns whether one file may hold figures of both machines: whether their CPUs, numbers of CPUs and instructions
    are equal."""
    return all(description.get(name) == other.get(name) for name in ("cpu", "microarchitecture", "cpus", "instructions"))


def describe():
    fields = parse_fields(read("/proc/cpuinfo"))
    flags = (fields.get("flags") or fields.get("Features", "")).split()  # the field's name on x86-64, or on aarch64
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "asimddp", "bf16", "i8mm")
    return {
        "cpu": fields.get("model name", platform.machine()),
        "microarchitecture": microarchitecture(fields),
        "vendor": fields.get("vendor_id", ""),
        "cpus": len(os.sched_getaffinity(0)),
        "instructions": [flag for flag in wanted if flag in flags],
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "system": f"{platform.system()} {platform.release()}",
    }
