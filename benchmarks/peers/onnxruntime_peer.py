"""ONNX Runtime's CPU attention as a peer. Cases without a mask and with equal numbers of heads use MultiHeadAttention.
Other cases use GroupQueryAttention, which is always causal. Both take [B, S, N * D]. Inputs are converted to this
layout before the timing."""

import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from worker import Unsupported, serve

DOMAIN = "com.microsoft"
ELEMENT = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16}


def model_of(operator, case, inputs, outputs, **attributes):
    """Returns a model of one operator. @param inputs, outputs  (name, element type, shape) of each, in the operator's
    order; None for an absent one"""
    element = ELEMENT[case["dtype"]]

    def names(values):
        return [value[0] if value else "" for value in values]

    def infos(values):
        return [helper.make_tensor_value_info(value[0], value[1] or element, value[2]) for value in values if value]

    node = helper.make_node(operator, names(inputs), names(outputs), domain=DOMAIN, **attributes)
    graph = helper.make_graph([node], "attention", infos(inputs), infos(outputs))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def packed(tensor):
    """Returns a tensor [B, N, S, D] as [B, S, N * D]."""
    batch, heads, s, d = tensor.shape
    return np.ascontiguousarray(tensor.transpose(0, 2, 1, 3).reshape(batch, s, heads * d))


class OnnxRuntimePeer:
    def about(self):
        return {"version": onnxruntime.__version__}

    def prepare(self, case):
        self.release()
        if case["operation"] == "backward":
            raise Unsupported("no backward")
        if case["dtype"] not in ELEMENT:
            raise Unsupported(f"no {case['dtype']} on CPUs")
        self.case = case
        q, k, v = (np.load(f"{case['folder']}/{name}.npy") for name in ("q", "k", "v"))
        if case["mask"] == "full" and case["heads"] == case["heads_kv"]:
            return self.prepare_multi_head(q, k, v)
        if case["mask"] == "causal":
            return self.prepare_group_query(q, k, v, past=0)
        if case["sq"] == 1 and case["mask"] == "full":
            return self.prepare_group_query(q, k, v, past=case["sk"] - 1)
        raise Unsupported(f"mask {case['mask']} with {case['heads']} heads over {case['heads_kv']}")

    def bind(self, model, feeds, outputs):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.case["threads"]
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.sizes = {name: array.nbytes for name, array in feeds.items()}
        self.feeds = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        for name, value in self.feeds.items():
            self.binding.bind_ortvalue_input(name, value)
        self.outputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in outputs.items()}
        for name, value in self.outputs.items():
            self.binding.bind_ortvalue_output(name, value)

    def prepare_multi_head(self, q, k, v):
        case = self.case
        feeds = {name: packed(tensor) for name, tensor in (("q", q), ("k", k), ("v", v))}
        shapes = {name: array.shape for name, array in feeds.items()}
        model = model_of("MultiHeadAttention", case, [(name, None, shapes[name]) for name in feeds],
                         [("out", None, shapes["q"])], num_heads=case["heads"])
        self.bind(model, feeds, {"out": np.empty_like(feeds["q"])})
        return {"note": "MultiHeadAttention"}

    def prepare_group_query(self, q, k, v, past, cache=None, scales=None):
        """Makes GroupQueryAttention. It writes the new keys into the cache in place. @param past  the number of keys
        that the cache already has. @param cache  the cache's keys and values as int8; None means k and v.
        @param scales  the scales of an int8 cache, one per head and column
        """
        case = self.case
        new = slice(past, None)
        feeds = {"q": packed(q), "k": packed(k[:, :, new]), "v": packed(v[:, :, new])}
        inputs = [(name, None, array.shape) for name, array in feeds.items()]
        element = TensorProto.INT8 if cache else None
        keys, values = cache or (k, v)
        attributes = {"num_heads": case["heads"], "kv_num_heads": case["heads_kv"]}
        cache = {}
        if past:
            cache = {"past_k": keys, "past_v": values}
            inputs += [(name, element, array.shape) for name, array in cache.items()]
        else:
            inputs += [None, None]
        lengths = {"lengths": np.full((case["batch"],), case["sk"] - 1, np.int32),
                   "total": np.array([case["sk"]], np.int32)}
        inputs += [(name, TensorProto.INT32, array.shape) for name, array in lengths.items()]
        if scales:
            lengths |= {"k_scale": scales[0], "v_scale": scales[1]}
            inputs += [None] * 5 + [(name, TensorProto.FLOAT, lengths[name].shape) for name in ("k_scale", "v_scale")]
            attributes |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
        present = (case["batch"], case["heads_kv"], case["sk"], case["d"])
        outputs = [("out", None, feeds["q"].shape), ("present_k", element, present), ("present_v", element, present)]
        model = model_of("GroupQueryAttention", case, inputs, outputs, **attributes)
        results = {"out": np.empty_like(feeds["q"]), "present_k": np.empty(present, keys.dtype),
                   "present_v": np.empty(present, values.dtype)}
        self.bind(model, {**feeds, **cache, **lengths}, results)
        if past:
            for name in ("k", "v"):
                self.binding.bind_ortvalue_output(f"present_{name}", self.feeds[f"past_{name}"])
        return {"note": "GroupQueryAttention"}

    def call(self):
        self.session.run_with_iobinding(self.binding)

    def result(self, batch, heads, rows, columns):
        """Returns the call's result, [B, N, Sq, D]."""
        out = self.outputs["out"].numpy().reshape(batch, rows, heads, columns)
        return np.ascontiguousarray(out.transpose(0, 2, 1, 3))

    def save_results(self):
        case = self.case
        out = self.result(case["batch"], case["heads"], case["sq"], case["d"])
        np.save(os.path.join(case["folder"], "out.npy"), out)

    def memory(self):
        names = ("past_k", "past_v") if "past_k" in self.feeds else ("k", "v")
        return [(self.feeds[name].data_ptr(), self.sizes[name]) for name in names]

    def release(self):
        self.session = self.binding = self.feeds = self.sizes = self.outputs = None


if __name__ == "__main__":
    serve(OnnxRuntimePeer())
