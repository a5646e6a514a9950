"""Derivatives of the custom operators, for all ways in which PyTorch asks for them: backward (also by several threads
on one graph), torch.func.grad and vjp, and create_graph. Forward mode is refused.

torch.library.register_autograd is not enough for this. torch.func refuses derivatives that are registered with it, and
forward mode drops the tangents. Two threads that run backward on one graph would change the same context. So each
operator has a kernel for the dispatch key Autograd, as PyTorch's own operators have. torch.func builds on such kernels.
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

Derivative = Callable[[Any], Callable]  # a function that takes an operator and returns its Autograd kernel
SetupContext = Callable[[Any, tuple, Any], None]  # called as setup_context(ctx, inputs, output)
# Called as backward(ctx, needs_input_grad, *gradients of the outputs); returns one gradient per input.
Backward = Callable[..., tuple]


def reverse(setup_context: SetupContext, backward: Backward) -> Derivative:
    """Returns a derivative in reverse mode.

    Args:
        setup_context: saves on ctx what backward needs, and marks outputs that have no gradient.
        backward: is called if at least one output has a gradient. It gets None for the gradient of any other output.
    """

    def derivative(operator):
        def below(keyset, arguments):
            with below_autograd():
                return operator.redispatch(keyset & after_autograd, *arguments)

        def forward(ctx, keyset, *arguments):
            # PyTorch calls this function with gradients switched off. If transforms of torch.func are active, only the
            # innermost one wants this. The outer transforms need gradients and forward mode.
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
            # torch.func calls this kernel for one of the active transforms. The formula must apply to this transform
            # alone.
            with on_one_level():
                return super(torch.autograd.Function, formula).apply(keyset, *arguments)

        return kernel

    return derivative


def none(what: str) -> Derivative:
    """Returns a derivative whose backward raises NotImplementedError: "there is no WHAT"."""
    return lambda operator: reverse(lambda *_: None, _refusal(operator, f"there is no {what}"))(operator)


def constant(operator: Any) -> Callable:
    """Returns the derivative of an operator whose results are constants to autograd, so they need no gradient."""

    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(*(output if isinstance(output, tuple) else (output,)))

    return reverse(setup_context, _refusal(operator, "its results are constants"))(operator)


def none_of_lists(operator: Any) -> Callable:
    """Returns the derivative of an operator that takes lists of tensors, which `reverse` cannot handle. It raises
    NotImplementedError where autograd would record the operator."""

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
        call: the tuple class of the operator's further arguments. Its first `tensors` members are tensors.
        backward: the operator that takes (query, key, value, out, d_out, *statistics, a bool per name in `asked`,
            *call). It returns dq, dk, dv and the gradients of `others`.
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
