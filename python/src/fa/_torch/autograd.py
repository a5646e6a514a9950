"""Derivatives of the custom operators, where every one of PyTorch's ways to ask for them looks: backward (also by
several threads on one graph), torch.func.grad and vjp, create_graph, and forward mode, which is refused.

torch.library.register_autograd serves backward alone. torch.func refuses its formulas, forward mode passes them by and
drops the tangents, and two threads that walk one graph change the same context. So the formulas are registered here as
what PyTorch's own operators have: kernels of the dispatch key Autograd, on which torch.func builds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _after_autograd_keyset, _any_requires_grad, _are_functorch_transforms_active
from torch._C import _AutoDispatchBelowAutograd as below_autograd
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad

SetupContext = Callable[[Any, tuple, Any], None]  # (ctx, inputs, output)
Backward = Callable[..., tuple]  # (ctx, needs_input_grad, *gradients of the outputs) -> one gradient per input


def register_autograd(
    library: torch.library.Library, operator: Any, setup_context: SetupContext, backward: Backward
) -> None:
    """Gives `operator`, of `library`, a derivative in reverse mode.

    Args:
        setup_context: saves on ctx what backward needs, and marks outputs that have no gradient.
        backward: is called if anything depends on an output that has a gradient; those of other outputs are None.
    """

    def below(keyset, arguments):
        with below_autograd():
            return operator.redispatch(keyset & _after_autograd_keyset, *arguments)

    def forward(ctx, keyset, *arguments):
        # PyTorch calls this with gradients switched off. Under torch.func it stands for the innermost transform, and
        # those around it are to find what they switched on.
        if _are_functorch_transforms_active():
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
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

    formula = type(
        f"{operator.name()}_formula",
        (torch.autograd.Function,),
        {
            "forward": staticmethod(forward),
            "backward": staticmethod(gradients),
            "jvp": staticmethod(_refusal(operator, "forward-mode derivatives are not implemented, want reverse mode")),
        },
    )

    def kernel(keyset, *arguments):
        recorded = torch.is_grad_enabled() and _any_requires_grad(*arguments)
        if not recorded and forward_ad._current_level < 0:
            return below(keyset, arguments)
        if not _are_functorch_transforms_active():
            return formula.apply(keyset, *arguments)
        # A transform has chosen its level, and calls the kernel for this level alone.
        with enable_single_level_autograd_function():
            return super(torch.autograd.Function, formula).apply(keyset, *arguments)

    library.impl(operator.name().partition("::")[2], kernel, "Autograd", with_keyset=True)


def register_no_derivative(library: torch.library.Library, operator: Any, what: str) -> None:
    """Gives `operator` a backward that raises NotImplementedError, which says that there is no `what`."""
    register_autograd(library, operator, lambda ctx, inputs, output: None, _refusal(operator, f"there is no {what}"))


def refuse_derivatives(library: torch.library.Library, operator: Any) -> None:
    """Makes `operator`, which takes lists of tensors, raise NotImplementedError wherever a derivative is recorded. (The
    formulas above do not look into lists.)"""

    def kernel(keyset, *arguments):
        tensors = [t for a in arguments for t in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(t, Tensor)]
        recorded = torch.is_grad_enabled() and _any_requires_grad(*tensors)
        dual = forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None for t in tensors)
        if recorded or dual:
            raise NotImplementedError(f"{operator.name()}: there is no gradient")
        with below_autograd():
            return operator.redispatch(keyset & _after_autograd_keyset, *arguments)

    library.impl(operator.name().partition("::")[2], kernel, "Autograd", with_keyset=True)


def register_constant(library: torch.library.Library, operator: Any) -> None:
    """Makes the results of `operator` constants to autograd."""
    register_autograd(
        library,
        operator,
        lambda ctx, inputs, output: ctx.mark_non_differentiable(*output),
        _refusal(operator, "its results are constants"),
    )


def _refusal(operator: Any, reason: str) -> Callable:
    def refuse(*_):
        raise NotImplementedError(f"{operator.name()}: {reason}")

    return refuse
