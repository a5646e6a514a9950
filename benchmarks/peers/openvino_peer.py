"""OpenVINO's scaled_dot_product_attention on its CPU device as a peer."""

import numpy as np
import openvino
from openvino import opset13

from worker import Unsupported, serve

# f16 is computed in f32: the device's hint f16 would let it compute in bf16 on CPUs without AVX512-FP16.
TYPES = {"f32": (openvino.Type.f32, "f32"), "bf16": (openvino.Type.bf16, "bf16"), "f16": (openvino.Type.f16, "f32")}


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
        element, precision = TYPES[case["dtype"]]
        arrays = [np.load(f"{case['folder']}/{name}.npy") for name in ("q", "k", "v")]
        if case["mask"] == "full":  # the query heads that share a key head as rows of one
            arrays[0] = arrays[0].reshape(case["batch"], case["heads_kv"], -1, case["d"])
        parameters = [opset13.parameter(array.shape, element) for array in arrays]
        query, *others = parameters
        if arrays[0].shape[1] != case["heads_kv"]:
            sizes = (case["batch"], case["heads_kv"], case["heads"] // case["heads_kv"], case["sk"], case["d"])
            others = [self.grouped(other, sizes) for other in others]
        out = opset13.scaled_dot_product_attention(query, *others, causal=case["mask"] == "causal")
        settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": case["threads"], "NUM_STREAMS": 1,
                    "ENABLE_CPU_PINNING": False}
        compiled = openvino.Core().compile_model(openvino.Model([out], parameters), "CPU", settings)
        self.request = compiled.create_infer_request()
        for index, array in enumerate(arrays):
            tensor = openvino.Tensor(element, openvino.Shape(array.shape))
            tensor.data.view(np.uint8)[...] = array.view(np.uint8)
            self.request.set_input_tensor(index, tensor)

    @staticmethod
    def grouped(node, sizes):
        """Keys or values for each head of a group, in the form that the device fuses."""
        batch, heads_kv, group, keys, d = sizes
        wide = opset13.broadcast(opset13.unsqueeze(node, opset13.constant([2])), opset13.constant(list(sizes)))
        return opset13.reshape(wide, opset13.constant([batch, heads_kv * group, keys, d]), False)

    def call(self):
        self.request.infer()

    def save_results(self):
        case, data = self.case, self.request.get_output_tensor(0).data
        data = data.reshape(case["batch"], case["heads"], case["sq"], case["d"])
        np.save(f"{case['folder']}/out.npy", data.view(np.uint16) if case["dtype"] == "bf16" else data)

    def release(self):
        self.request = None


if __name__ == "__main__":
    serve(OpenVinoPeer())
