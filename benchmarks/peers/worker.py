"""The peer's side of the conversation with compare.py: one JSON object per line on standard input, one answer per line
on standard output. peers/worker.cc is the same in C++.

    {"do": "about"}                         -> {"version": ...}
    {"do": "prepare", <case>, "folder": F}  -> {"ok": true} or {"unsupported": why}; reads F/q.npy and so on, replaces
                                               the case before; for a backward it runs the forward; may add
                                               "note": what the peer chose for the case
    {"do": "check"}                         -> {"ok": true}; one call, whose results become F/out.npy, or dq, dk and dv
    {"do": "time", "seconds": S}            -> {"seconds": [one per call, ...]} for about S seconds, at least one call
    {"do": "read", "seconds": S, "threads": N, "library": L}
                                            -> {"gbytes": rate}; GB/s at which N threads read the case's keys and values
                                               at the addresses that the call reads, in the best pass within S seconds;
                                               0 if keys and values are too small. The library L (read_rate.cc) reads
    {"do": "release"}                       -> {"ok": true}

The answer to a request that fails is {"error": text}. fa also answers "plan" and "peak".
"""

import ctypes
import json
import os
import sys
import time


class Unsupported(Exception):
    """The peer has no kernel for a case; the text names the part of the case that is unsupported."""


def time_calls(call, seconds):
    """Returns seconds per call, one number per sample."""
    samples, spent, calls = [], 0.0, 1
    while not samples or spent < seconds:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        sample = time.perf_counter() - begin
        spent += sample
        if sample < 20e-6:  # much longer than reading the clock takes
            calls *= 2
        else:
            samples.append(sample / calls)
    return samples


def read_rate(blocks, request):
    """@return GB/s at which the threads read the blocks. @param blocks  (address, bytes) pairs"""
    function = ctypes.CDLL(request["library"]).fa_peer_read_rate
    function.restype = ctypes.c_double
    addresses, sizes = zip(*blocks)
    count = len(blocks)
    return function(ctypes.c_int(request["threads"]), ctypes.c_size_t(count), (ctypes.c_void_p * count)(*addresses),
                    (ctypes.c_size_t * count)(*sizes), ctypes.c_double(request["seconds"]))


def reply(peer, request):
    what = request["do"]
    if what == "about":
        return peer.about()
    if what == "prepare":
        return {"ok": True, **(peer.prepare(request) or {})}
    if what == "check":
        peer.call()
        peer.save_results()
    elif what == "time":
        return {"seconds": time_calls(peer.call, request["seconds"])}
    elif what == "read":
        return {"gbytes": read_rate(peer.memory(), request)}
    elif what == "release":
        peer.release()
    elif what in ("plan", "peak") and hasattr(peer, "answer"):
        return peer.answer(request)
    else:
        raise ValueError(f"unknown request {what}")
    return {"ok": True}


def serve(peer):
    """Answers until standard input ends. Output of libraries goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = reply(peer, json.loads(line))
        except Unsupported as reason:
            answer = {"unsupported": str(reason)}
        except Exception as error:  # pylint: disable=broad-except  # the driver reports the error
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
