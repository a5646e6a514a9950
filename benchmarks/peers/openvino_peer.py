"""OpenVINO's scaled_dot_product_attention on its CPU device as a peer."""

import time

import numpy as np
import openvino
from openvino import opset6, opset13
from openvino.op.util import Variable, VariableInfo

from worker import Unsupported, serve

# f16 is computed in f32. With the hint f16, the device could compute in bf16 on CPUs without AVX512-FP16.
TYPES = {"f32": (openvino.Type.f32, "f32"), "bf16": (openvino.Type.bf16, "bf16"), "f16": (openvino.Type.f16, "f32")}


# With a causal mask the device computes every key for every row. So the peer cuts the query rows into chunks, and gives
# each chunk only the keys up to its last row. It tries these sizes and a single chunk, and times the fastest.
CHUNK_ROWS = (128, 256, 512, 1024)
TRIES = 3
NUMPY_TYPES = {"f32": np.float32, "f16": np.float16}


class OpenVinoPeer:
    def about(self):
        return {"version": openvino.__version__.split("-")[0]}

    def prepare(self, case):
        self.release()
        if case["operation"] == "backward":
            raise Unsupported("no backward")
        if case["mask"] not in ("full", "causal") or (case["mask"] == "causal" and case["sq"] != case["sk"]):
            raise Unsupported(f"mask {case['mask']}")
        self.case = case
        arrays = [np.load(f"{case['folder']}/{name}.npy") for name in ("q", "k", "v")]
        if case["mask"] == "full":
            self.requests = [self.chunk(arrays, 0, case["sq"], None)]
            return {}
        chosen, best = None, float("inf")
        for rows in (case["sq"], *(rows for rows in CHUNK_ROWS if rows < case["sq"])):
            requests = self.causal_chunks(arrays, rows)
            seconds = self.shortest(requests)
            if seconds < best:
                chosen, best, self.requests = rows, seconds, requests
        return {"note": "whole" if chosen == case["sq"] else f"chunks of {chosen} rows"}

    def causal_chunks(self, arrays, rows):
        sq = self.case["sq"]
        if rows == sq:
            return [self.whole_causal(arrays)]
        return [self.chunk(arrays, first, min(first + rows, sq), self.causal_mask) for first in range(0, sq, rows)]

    @staticmethod
    def shortest(requests):
        def run():
            begin = time.perf_counter()
            for request in requests:
                request.infer()
            return time.perf_counter() - begin

        run()
        return min(run() for _ in range(TRIES))

    def chunk(self, arrays, first, end, mask):
        """Compiles attention of query rows [first, end) to the keys that these rows see. The rows of all heads of a
        group become rows of one head."""
        case = self.case
        q, k, v = arrays
        keys = case["sk"] if mask is None else end
        group = case["heads"] // case["heads_kv"]
        q = q[:, :, first:end].reshape(case["batch"], case["heads_kv"], group * (end - first), case["d"])
        inputs = [q, k[:, :, :keys], v[:, :, :keys]]
        if mask is not None:
            inputs.append(mask(first, end, group))
        return self.compiled(inputs, lambda parameters: opset13.scaled_dot_product_attention(*parameters, causal=False))

    def causal_mask(self, first, end, group):
        sees = np.arange(end)[None, :] <= np.arange(first, end)[:, None]
        mask = np.tile(np.where(sees, np.float32(0), np.float32(-np.inf)), (group, 1))
        # The mask has only 0 and -inf, which bf16 holds exactly.
        return (mask.view(np.uint32) >> 16).astype(np.uint16) if self.case["dtype"] == "bf16" else mask.astype(NUMPY_TYPES[self.case["dtype"]])

    def whole_causal(self, arrays):
        case = self.case
        sizes = (case["batch"], case["heads_kv"], case["heads"] // case["heads_kv"], case["sk"], case["d"])

        def attention(parameters):
            query, *others = parameters
            if case["heads"] != case["heads_kv"]:
                others = [self.grouped(other, sizes) for other in others]
            return opset13.scaled_dot_product_attention(query, *others, causal=True)

        return self.compiled(arrays, attention)

    def compiled(self, arrays, attention):
        """Returns a request that computes attention(parameters) of the arrays. The request keeps copies of the
        arrays."""
        element, precision = TYPES[self.case["dtype"]]
        parameters = [opset13.parameter(array.shape, element) for array in arrays]
        settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": self.case["threads"], "NUM_STREAMS": 1,
                    "ENABLE_CPU_PINNING": False}
        model = openvino.Model([attention(parameters)], parameters)
        request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
        for index, array in enumerate(arrays):
            tensor = openvino.Tensor(element, openvino.Shape(array.shape))
            tensor.data.view(np.uint8)[...] = np.ascontiguousarray(array).view(np.uint8)
            request.set_input_tensor(index, tensor)
        return request

    @staticmethod
    def grouped(node, sizes):
        """Returns keys or values, repeated for each query head of a group, in a form that the device fuses into
        attention."""
        batch, heads_kv, group, keys, d = sizes
        wide = opset13.broadcast(opset13.unsqueeze(node, opset13.constant([2])), opset13.constant(list(sizes)))
        return opset13.reshape(wide, opset13.constant([batch, heads_kv * group, keys, d]), False)

    def call(self):
        for request in self.requests:
            request.infer()

    def save_results(self):
        case = self.case
        parts = [request.get_output_tensor(0).data for request in self.requests]
        parts = [part.reshape(case["batch"], case["heads"], -1, case["d"]) for part in parts]
        data = np.concatenate(parts, axis=2)
        np.save(f"{case['folder']}/out.npy", data.view(np.uint16) if case["dtype"] == "bf16" else data)

    def memory(self):
        """Returns addresses and bytes of the first chunk's keys and values. Without a mask, this chunk is the whole
        case."""
        tensors = [self.requests[0].get_input_tensor(index) for index in (1, 2)]
        return [(tensor.data.ctypes.data, tensor.byte_size) for tensor in tensors]

    def release(self):
        self.requests = []


class StatefulAttention:
    """Attention of one row per sequence over a state, to which each call adds a key. The device stores the state in the
    given precision, as it does for language models.

    q is f32 [B, N, 1, D]. k and v are f32 [B, Nkv, S, D], of which the last key is the one that a call adds.
    """

    def __init__(self, q, k, v, precision, threads):
        (batch, heads, _, d), heads_kv = q.shape, k.shape[1]
        new = openvino.PartialShape([batch, heads_kv, 1, d])
        query, key, value = (opset13.parameter(shape, openvino.Type.f32) for shape in (q.shape, new, new))
        order = opset13.parameter([batch], openvino.Type.i32)
        results = []
        states = [self.state_of(f"past_{name}", row, order, results) for name, row in (("k", key), ("v", value))]
        if heads != heads_kv:
            states = [self.repeated(state, heads, heads_kv) for state in states]
        attention = opset13.scaled_dot_product_attention(query, *states, causal=False)
        model = openvino.Model([opset13.result(attention)], results, [query, key, value, order])
        settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False,
                    "INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": precision}
        compiled = openvino.Core().compile_model(model, "CPU", settings)
        kinds = {node.get_rt_info()["layerType"].astype(str) for node in compiled.get_runtime_model().get_ordered_ops()}
        if not any("ScaledDotProductAttention" in kind for kind in kinds):
            raise RuntimeError(f"OpenVINO does not fuse attention with its state: {kinds}")
        self.request = compiled.create_infer_request()
        past = {"past_k": k, "past_v": v}
        for state in self.request.query_state():
            state.state = openvino.Tensor(np.ascontiguousarray(past[state.name][:, :, :-1]))
        self.inputs = [q, *(np.ascontiguousarray(x[:, :, -1:]) for x in (k, v)), np.arange(batch, dtype=np.int32)]

    @staticmethod
    def state_of(name, row, order, results):
        """Returns the keys or values of a state after `row` has been appended, in a form that the device fuses into
        attention.
        """
        batch, heads, _, d = row.get_partial_shape()
        shape = openvino.PartialShape([batch, heads, openvino.Dimension(), d])
        variable = Variable(VariableInfo())
        info = VariableInfo()
        info.data_shape, info.data_type, info.variable_id = shape, openvino.Type.f32, name
        variable.update(info)
        none = opset13.constant(np.zeros((batch.get_length(), heads.get_length(), 0, d.get_length()), np.float32))
        past = opset13.gather(opset6.read_value(none, variable), order, opset13.constant(0))
        whole = opset13.concat([past, row], 2)
        results.append(opset6.assign(whole, variable))
        return whole

    @staticmethod
    def repeated(node, heads, heads_kv):
        wide = opset13.broadcast(opset13.unsqueeze(node, opset13.constant(2)),
                                 opset13.constant([1, 1, heads // heads_kv, 1, 1]), broadcast_spec="BIDIRECTIONAL")
        return opset13.reshape(wide, opset13.constant([0, heads, -1, node.get_output_partial_shape(0)[3].get_length()]), True)

    def __call__(self):
        self.request.infer(dict(enumerate(self.inputs)), share_inputs=True)
        return self

    def result(self, *shape):
        return np.array(self.request.get_output_tensor(0).data, np.float32).reshape(shape)


if __name__ == "__main__":
    serve(OpenVinoPeer())
