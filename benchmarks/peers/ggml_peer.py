"""ggml's flash attention (llama.cpp's) as a peer for decoding. The package libggml-python has the libraries. Keys and
values are f32, bf16 or f16. Queries and results are f32. Queries are converted to f32 before the timing."""

import ctypes
import importlib.metadata
import os

import libggml
import numpy as np

from worker import Unsupported, serve

TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}  # the numbers of enum ggml_type
BLOCK = 32  # elements of q8_0 and q4_0 that share a scale of two bytes
BLOCK_BYTES = {"q8_0": 34, "q4_0": 18}
DESCRIPTION_BYTES = 1 << 20  # enough bytes for the descriptions of tensors and graph
HERE = os.path.dirname(libggml.__file__)
FOLDER = next(path for path in (os.path.join(HERE, name) for name in ("lib", "lib64")) if os.path.isdir(path))


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Plan(ctypes.Structure):
    """struct ggml_cplan, with room for fields of later versions."""

    _fields_ = [("work_size", ctypes.c_size_t), ("work_data", ctypes.c_void_p), ("n_threads", ctypes.c_int),
                ("threadpool", ctypes.c_void_p), ("abort_callback", ctypes.c_void_p), ("abort_data", ctypes.c_void_p),
                ("use_ref", ctypes.c_bool)]


def load(name):
    return ctypes.CDLL(os.path.join(FOLDER, name), mode=ctypes.RTLD_GLOBAL)


base, cpu = load("libggml-base.so"), load("libggml-cpu.so")
base.ggml_init.argtypes, base.ggml_init.restype = [InitParams], ctypes.c_void_p
base.ggml_free.argtypes, base.ggml_free.restype = [ctypes.c_void_p], None
base.ggml_new_tensor_4d.argtypes = [ctypes.c_void_p, ctypes.c_int, *[ctypes.c_int64] * 4]
base.ggml_new_tensor_4d.restype = ctypes.c_void_p
base.ggml_flash_attn_ext.argtypes = [*[ctypes.c_void_p] * 5, *[ctypes.c_float] * 3]
base.ggml_flash_attn_ext.restype = ctypes.c_void_p
base.ggml_new_graph.argtypes, base.ggml_new_graph.restype = [ctypes.c_void_p], ctypes.c_void_p
base.ggml_build_forward_expand.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
base.ggml_get_data.argtypes, base.ggml_get_data.restype = [ctypes.c_void_p], ctypes.c_void_p
base.ggml_quantize_chunk.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_void_p]
base.ggml_quantize_chunk.restype = ctypes.c_size_t
cpu.ggml_cpu_init.argtypes = []
cpu.ggml_graph_plan.argtypes, cpu.ggml_graph_plan.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p], Plan
cpu.ggml_graph_compute.argtypes = [ctypes.c_void_p, ctypes.POINTER(Plan)]


def instructions():
    """Returns the vector instructions for which the library was built."""
    names = ("avx2", "avx512", "avx512_bf16")
    return ", ".join(name for name in names if getattr(cpu, f"ggml_cpu_has_{name}")()) or "none"


def bytes_of(array, dtype):
    """Returns the bytes that the array's elements take in ggml."""
    return array.size // BLOCK * BLOCK_BYTES[dtype] if dtype in BLOCK_BYTES else array.nbytes


class GgmlPeer:
    context = None

    def about(self):
        cpu.ggml_cpu_init()
        return {"version": importlib.metadata.version("libggml-python"), "runtime": instructions()}

    def prepare(self, case):
        self.release()
        if case["operation"] == "backward" or case["sq"] != 1 or case["mask"] != "full":
            raise Unsupported("decoding only")
        self.case = case
        q, k, v = (np.load(f"{case['folder']}/{name}.npy") for name in ("q", "k", "v"))
        wide = (q.astype(np.uint32) << 16).view(np.float32) if case["dtype"] == "bf16" else q.astype(np.float32)
        self.build(wide, k, v, case["dtype"], case["threads"])

    def build(self, q, k, v, dtype, threads):
        """Makes the graph of a call. @param q  f32. @param k, v  [B, N, S, D], f32 where dtype is q8_0 or q4_0"""
        size = DESCRIPTION_BYTES + 2 * q.nbytes + k.nbytes + v.nbytes
        self.context = base.ggml_init(InitParams(size, None, False))
        tensors = [self.tensor(q, "f32"), self.tensor(k, dtype), self.tensor(v, dtype)]
        self.blocks = [(base.ggml_get_data(tensor), bytes_of(k, dtype)) for tensor in tensors[1:]]
        self.out = base.ggml_flash_attn_ext(self.context, *tensors, None, q.shape[-1] ** -0.5, 0, 0)
        self.graph = base.ggml_new_graph(self.context)
        base.ggml_build_forward_expand(self.graph, self.out)
        self.plan = cpu.ggml_graph_plan(self.graph, threads, None)
        self.work = np.empty(self.plan.work_size, np.uint8)
        self.plan.work_data = self.work.ctypes.data

    def tensor(self, array, dtype):
        """Returns a tensor with the array's elements. ggml counts dimensions from the innermost."""
        tensor = base.ggml_new_tensor_4d(self.context, TYPES[dtype], *reversed(array.shape))
        if dtype in BLOCK_BYTES:
            columns = array.shape[-1]
            base.ggml_quantize_chunk(TYPES[dtype], array.ctypes.data, base.ggml_get_data(tensor), 0,
                                     array.size // columns, columns, None)
        else:
            ctypes.memmove(base.ggml_get_data(tensor), array.ctypes.data, array.nbytes)
        return tensor

    def call(self):
        if cpu.ggml_graph_compute(self.graph, ctypes.byref(self.plan)) != 0:
            raise RuntimeError("ggml_graph_compute failed")

    def result(self, batch, heads, rows, columns):
        """Returns a copy of the call's result, f32 [B, N, Sq, D]."""
        pointer = ctypes.cast(base.ggml_get_data(self.out), ctypes.POINTER(ctypes.c_float))
        flat = np.ctypeslib.as_array(pointer, (batch * rows * heads * columns,))
        return flat.reshape(batch, rows, heads, columns).transpose(0, 2, 1, 3).copy()

    def save_results(self):
        case = self.case
        out = self.result(case["batch"], case["heads"], case["sq"], case["d"])
        if case["dtype"] == "bf16":
            bits = out.view(np.uint32)
            out = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        np.save(f"{case['folder']}/out.npy", out.astype(np.float16) if case["dtype"] == "f16" else out)

    def memory(self):
        return self.blocks

    def release(self):
        if self.context:
            base.ggml_free(self.context)
        self.context = self.work = self.blocks = None


if __name__ == "__main__":
    serve(GgmlPeer())
