"""Derivatives of the custom operators, for every way in which PyTorch asks for them. These ways are backward (also by
several threads on one graph), torch.func.grad and vjp, create_graph, and forward mode, which is refused.

torch.library.register_autograd serves backward alone. torch.func refuses its formulas. Forward mode ignores them and
drops the tangents. Two threads that walk one graph change the same context. So a derivative here is what PyTorch's own
operators have: a kernel of the dispatch key Autograd, on which torch.func builds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._pytorch import (
    after_autograd,
    any_requires_grad,
    below_autograd,
    in_forward_mode,
    on_one_level,
    transforms_are_active,
    with_forward_mode,
)

Derivative = Callable[[Any], Callable]  # makes the kernel of an operator
SetupContext = Callable[[Any, tuple, Any], None]  # (ctx, inputs, output)
Backward = Callable[..., tuple]  # (ctx, needs_input_grad, *gradients of the outputs) -> one gradient per input


def reverse(setup_context: SetupContext, backward: Backward) -> Derivative:
    """Returns a derivative in reverse mode.

    Args:
        setup_context: saves on ctx what backward needs, and marks outputs that have no gradient.
        backward: is called if anything depends on an output that has a gradient. The gradients of other outputs are
            None.
    """

    def derivative(operator):
        def below(keyset, arguments):
            with below_autograd():
                return operator.redispatch(keyset & after_autograd, *arguments)

        def forward(ctx, keyset, *arguments):
            # PyTorch calls this function with gradients switched off. Under torch.func, the call serves the innermost
            # transform. The outer transforms must find gradients and forward mode as they switched them on.
            if transforms_are_active():
                with torch.enable_grad(), with_forward_mode(True):
                    output = below(keyset, arguments)
            else:
                output = below(keyset, arguments)
            ctx.set_materialize_grads(False)
            setup_context(ctx, arguments, output)
            return output

        def gradients(ctx, *d_outputs):
            if all(d is None for d in d_outputs):
                return (None,) * len(ctx.needs_input_grad)
            return None, *backward(ctx, ctx.needs_input_grad[1:], *d_outputs)

        refuse = _refusal(operator, "forward-mode derivatives are not implemented, want reverse mode")
        methods = {"forward": forward, "backward": gradients, "jvp": refuse}
        statics = {name: staticmethod(method) for name, method in methods.items()}
        formula = type(f"{operator.name()}_formula", (torch.autograd.Function,), statics)

        def kernel(keyset, *arguments):
            recorded = torch.is_grad_enabled() and any_requires_grad(*arguments)
            if not recorded and not in_forward_mode():
                return below(keyset, arguments)
            if not transforms_are_active():
                return formula.apply(keyset, *arguments)
            # A transform has chosen its level, and calls the kernel for this level alone.
            with on_one_level():
                return super(torch.autograd.Function, formula).apply(keyset, *arguments)

        return kernel

    return derivative


def none(what: str) -> Derivative:
    """Returns a derivative whose backward raises NotImplementedError, which says that there is no `what`."""
    return lambda operator: reverse(lambda *_: None, _refusal(operator, f"there is no {what}"))(operator)


def constant(operator: Any) -> Callable:
    """Returns the derivative of an operator whose results are constants to autograd."""

    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(*(output if isinstance(output, tuple) else (output,)))

    return reverse(setup_context, _refusal(operator, "its results are constants"))(operator)


def none_of_lists(operator: Any) -> Callable:
    """Returns the derivative of an operator that takes lists of tensors. It raises NotImplementedError wherever
    autograd would record the operator. The formulas above do not look into lists."""

    def kernel(keyset, *arguments):
        tensors = [t for a in arguments for t in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(t, Tensor)]
        recorded = torch.is_grad_enabled() and any_requires_grad(*tensors)
        dual = in_forward_mode() and any(forward_ad.unpack_dual(t).tangent is not None for t in tensors)
        if recorded or dual:
            raise NotImplementedError(f"{operator.name()}: there is no gradient")
        with below_autograd():
            return operator.redispatch(keyset & after_autograd, *arguments)

    return kernel


def of_attention(
    call: type,
    tensors: int,
    backward: Callable[..., tuple],
    others: tuple[str, ...] = (),
    asked: tuple[str, ...] = (),
) -> Derivative:
    """Returns the derivative of an operator (query, key, value, *call) -> (out, *statistics).

    Args:
        call: the tuple of the operator's further arguments, of which the first are `tensors`.
        backward: (query, key, value, out, d_out, *statistics, whether each of `asked` is wanted, *call) gives dq, dk,
            dv and the gradients of `others`.
    """
    inputs = 3 + tensors

    def setup_context(ctx, given, output):
        ctx.save_for_backward(*given[:inputs], *output)
        ctx.settings = given[inputs:]
        ctx.mark_non_differentiable(*output[1:])

    def pull(ctx, needs, d_out, *_):
        saved = ctx.saved_tensors
        wanted = dict(zip(call._fields, needs[3:], strict=True))
        out, *statistics = saved[inputs:]
        arguments = (*saved[:3], out, d_out, *statistics, *(wanted[name] for name in asked))
        gradients = backward(*arguments, *saved[3:inputs], *ctx.settings)
        of_call = dict.fromkeys(call._fields) | dict(zip(others, gradients[3:], strict=True))
        every = (*gradients[:3], *of_call.values())
        return tuple(gradient if need else None for gradient, need in zip(every, needs, strict=True))

    return reverse(setup_context, pull)


def _refusal(operator: Any, reason: str) -> Callable:
    def refuse(*_):
        raise NotImplementedError(f"{operator.name()}: {reason}")

    return refuse
