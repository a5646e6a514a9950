"""For every model type of transformers, "fa" gives the logits of "eager", or an error that names the model."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import pytest
import torch
from every_model import LISTED, NEEDS, REFUSED_BY, WARNED
from small_models import CAUSAL, TYPES, VOCABULARY, build
from torch import Tensor

import fa.transformers  # noqa: F401  (registers "fa")
from fa._model import calls, support

_MELS_FIRST = ("Whisper", "Qwen2Audio", "Voxtral", "Glm", "AudioFlamingo")
ROWS, STEPS = 12, 2
PADDED = torch.tensor([[0] * 5 + [1] * (ROWS - 5), [1] * ROWS])
KEPT = PADDED.bool()


def _tokens(*shape: int) -> Tensor:
    return torch.randint(3, VOCABULARY - 8, shape, generator=torch.Generator().manual_seed(1))


def _result(output: Any) -> Tensor:
    for name in ("logits", "last_hidden_state"):
        if isinstance(output.get(name), Tensor):
            return output[name]
    return next(value for value in output.values() if isinstance(value, Tensor) and value.is_floating_point())


def _first(config: Any, *names: str, default: Any = None) -> Any:
    return next((getattr(config, name) for name in names if getattr(config, name, None) is not None), default)


def _image(config: Any) -> Tensor:
    """Returns a random image, or a random video if the configuration has num_frames."""
    vision = getattr(config, "vision_config", None) or config
    size = _first(vision, "image_size", "img_size", default=32)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    frames = [] if (number := getattr(vision, "num_frames", None)) is None else [number]
    channels = _first(vision, "num_channels", "in_channels", "in_chans", default=3)
    return torch.randn(2, *frames, channels, height, width, generator=torch.Generator().manual_seed(2))


def _patches(config: Any, name: str) -> dict[str, Tensor]:
    """Returns the patches of two images, of 4 by 4 and of 8 by 4 patches, in one tensor."""
    grid = torch.tensor([[1, 4, 4], [1, 8, 4]])
    channels = _first(config, "in_channels", "in_chans", "num_channels", default=3)
    size = channels * _first(config, "temporal_patch_size", default=1) * config.patch_size**2
    return {name: torch.randn(48, size, generator=torch.Generator().manual_seed(2)), "grid_thw": grid}


def _inputs(model: Any) -> dict[str, Any]:
    names = set(inspect.signature(model.forward).parameters)
    generator = torch.Generator().manual_seed(2)
    main, config = model.main_input_name, model.config
    ids = _tokens(2, ROWS)
    last = getattr(config.get_text_config(), "eos_token_id", None)  # CLIP and similar models look for the end token
    ids[:, -1] = last if isinstance(last, int) and last < VOCABULARY else VOCABULARY - 8
    if "grid_thw" in names:
        return _patches(config, "hidden_states" if "hidden_states" in names else "pixel_values")
    if main == "input_ids" and "input_ids" in names:
        inputs = {"input_ids": ids} | ({"attention_mask": PADDED} if "attention_mask" in names else {})
        if "pixel_values" in names and not hasattr(model, "generate"):
            inputs["pixel_values"] = _image(config)
    elif "pixel_values" in names:
        inputs = {"pixel_values": _image(config)}
        if "input_ids" in names and not config.is_encoder_decoder:
            inputs |= {"input_ids": ids, "attention_mask": PADDED}
    elif "pixel_values_videos" in names:
        inputs = {"pixel_values_videos": _image(config)}
    elif "input_features" in names:
        frames = 2 * min(getattr(config, "max_source_positions", 32), 256)
        inner = getattr(config, "encoder_config", None) or getattr(config, "audio_config", None) or config
        names_of_size = "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_feat_size"
        mels = _first(inner, *names_of_size, default=80)
        shape = (mels, frames) if type(model).__name__.startswith(_MELS_FIRST) else (frames, mels)
        inputs = {"input_features": torch.randn(2, *shape, generator=generator)}
    elif "input_values" in names:
        inputs = {"input_values": torch.randn(2, 4000, generator=generator)}
    else:
        raise NotImplementedError(f"inputs {main}")
    if config.is_encoder_decoder and "decoder_input_ids" in names:
        inputs["decoder_input_ids"] = _tokens(2, 5)
    return inputs


def _cached(model: Any, inputs: dict[str, Any], chosen: list[Tensor] | None) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the logits of the prompt and of steps with a cache, and the tokens of the steps. The steps take the
    tokens `chosen`. If `chosen` is None, they take the most likely tokens.
    """
    torch.manual_seed(3)  # some models draw random numbers in their forward
    keywords = dict(inputs)
    names = set(inspect.signature(model.forward).parameters)
    ids = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    can = "use_cache" in names and "past_key_values" in names
    output = model(**keywords, **({"use_cache": True} if can else {}))
    logits = _result(output)
    kept = logits[KEPT] if logits.shape[:2] == KEPT.shape and "attention_mask" in inputs and ids == "input_ids" else logits
    results, tokens = [kept], []
    past = output.get("past_key_values") if can else None
    if past is None or logits.dim() != 3 or ids not in inputs:
        return results, tokens
    for step in range(STEPS):
        tokens.append(logits[:, -1:].argmax(-1) if chosen is None else chosen[step])
        keywords[ids] = tokens[-1]
        if ids == "input_ids" and "attention_mask" in keywords:
            keywords["attention_mask"] = torch.cat((keywords["attention_mask"], torch.ones(2, 1, dtype=torch.long)), 1)
        output = model(**keywords, use_cache=True, past_key_values=past)
        logits, past = _result(output), output.get("past_key_values")
        results.append(logits)
    return results, tokens


class NotRun(Exception):
    """Raised if transformers cannot build the small model. Also raised if the model with "eager" fails on the
    inputs, or gives results that are not finite."""


def _of_eager(kind: str) -> tuple[Any, dict[str, Any], list[Tensor], list[Tensor]]:
    """Returns the model, its inputs, its results with "eager", and the tokens of its greedy steps."""
    try:
        model = build(kind)
        inputs = _inputs(model)
        results, tokens = _cached(model, inputs, None)
        results += _last_rows(model, inputs)
    except Exception as error:
        raise NotRun(f"{type(error).__name__}: {error}") from error
    if not all(torch.isfinite(result).all() for result in results):
        raise NotRun("eager gives NaN")
    return model, inputs, results, tokens


def _last_rows(model: Any, inputs: dict[str, Any]) -> list[Tensor]:
    """Returns the logits of the last rows, as the model computes them with logits_to_keep, with and without padding."""
    if "logits_to_keep" not in inspect.signature(model.forward).parameters or "input_ids" not in inputs:
        return []
    whole = {name: value for name, value in inputs.items() if name != "attention_mask"}
    calls_of = [(inputs, 1), (inputs, 3), (whole, 0), (whole, 3)]
    return [_result(model(**given, logits_to_keep=keep))[:, -keep:] for given, keep in calls_of]


def _distance(got: list[Tensor], want: list[Tensor]) -> float:
    """Returns the largest difference from `want`, as a fraction of the largest magnitude in that tensor of `want`."""
    pairs = zip(got, want, strict=True)
    return max(((g - w).abs().max() / w.abs().max().clamp(min=1e-20)).nan_to_num(torch.inf).item() for g, w in pairs)


@torch.no_grad()
@pytest.mark.parametrize("kind", TYPES)
def test_a_model_has_the_logits_of_eager_or_is_refused(kind, monkeypatch):
    """Compares logits: of a prompt with padding on its left, of two greedy steps with a cache, and of the last rows
    alone."""
    if kind in LISTED:
        _check_that_it_is_not_run(kind)
        return
    model, inputs, want, tokens = _of_eager(kind)
    warnings = []
    monkeypatch.setattr(support._logger, "warning", warnings.append)
    before = sum(calls._calls.values())
    text = REFUSED_BY.get(kind)
    if text is not None:
        with pytest.raises(ValueError, match=text):
            model.set_attn_implementation("fa")
            _cached(model, inputs, tokens)
        return
    model.set_attn_implementation("fa")
    got, _ = _cached(model, inputs, tokens)
    got += _last_rows(model, inputs)
    assert _distance(got, want) <= 1e-4
    ran = sum(calls._calls.values()) > before
    assert ran == (kind not in WARNED)
    assert ran or any(warning.endswith("calls no attention function") for warning in warnings)


def _check_that_it_is_not_run(kind: str) -> None:
    """Checks that this type of `LISTED` still cannot be tested: `_of_eager` raises NotRun. If this check fails, take
    the type off its list in every_model.py. Types whose missing package is installed are not checked."""
    package = NEEDS.get(kind)
    if package is None or importlib.util.find_spec(package) is None:
        with pytest.raises(NotRun):
            _of_eager(kind)


def test_enough_models_run():
    run = [kind for kind in TYPES if kind not in LISTED]
    assert len([kind for kind in run if kind in CAUSAL]) >= 170
    assert len([kind for kind in run if kind not in CAUSAL]) >= 230
    for named in (LISTED, REFUSED_BY, WARNED):
        assert set(named) <= set(TYPES)
