"""Example inputs: values, functions of N or of H and W, texts; and what a model of transformers takes."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from xfcost.ledger.errors import SpecError, UsageError, printable
from xfcost.ledger.parallelism import HeadSharing
from xfcost.spec.checkpoints import POSITION_FIELDS, scaled_positions
from xfcost.spec.reader import read_value
from xfcost.spec.targets import SHAPE, SIDES, SUPPOSED
from xfcost.torch_models.any_model.token_ids import looked_up
from xfcost.torch_models.any_model.user_errors import OwnError, is_about_meta, raised, refused
from xfcost.torch_models.running.surroundings import WithoutPadding, known_numbers, with_numbers
from xfcost.torch_models.shared.private_torch import leaves_with_paths, pytree

if TYPE_CHECKING:
    from xfcost.ledger.ledger import Ledger


class Given(NamedTuple):
    """The inputs of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def places(self, model: nn.Module) -> list[str]:
        """The names of the parameters that take the positional inputs: `x`; of `*xs` the second is `xs[1]`."""
        names = list[str]()
        for name, one in _parameters(model.forward).items():
            starred = range(len(self.args) - len(names)) if one.kind is one.VAR_POSITIONAL else None
            names += [name] if starred is None else [f"{name}[{place}]" for place in starred]
        return [*names, *map(str, range(len(names), len(self.args)))][: len(self.args)]

    def named(self, model: nn.Module) -> list[tuple[str, Tensor]]:
        """Every tensor among the inputs, with the name of the parameter that takes it and its place there."""
        return [
            (name + path, leaf)
            for name, value in (*zip(self.places(model), self.args, strict=True), *self.kwargs.items())
            for path, leaf in leaves_with_paths(value)
            if isinstance(leaf, Tensor)
        ]

    def texts(self, model: nn.Module) -> list[str]:
        """`x: 1×3×224×224 float32` of every tensor."""
        return [
            f"{name}: {_shape_text(tensor)} {str(tensor.dtype).removeprefix('torch.')}"
            for name, tensor in self.named(model)
        ]


class Lengths(NamedTuple):
    """What the letters in a module's inputs stand for; None where nothing asks for it."""

    tokens: int | None = None
    """N."""
    size: tuple[int, int] | None = None
    """H and W, of an image."""
    text_alone: bool = False
    """Are images and sound left out whose features take places of tokens? A cache of N tokens is the same."""

    @property
    def letters(self) -> dict[str, int | None]:
        height, width = self.size or (None, None)
        return {"N": self.tokens, "H": height, "W": width}


def _shape_text(tensor: Tensor) -> str:
    """`2×3`; of a nested tensor, whose rows have shapes of their own, their number."""
    if tensor.is_nested and tensor.layout is torch.strided:
        return f"{tensor.size(0)} rows of {tensor.numel():,} elements together"
    return "×".join(map(str, tensor.shape)) or "()"


def letters_of(given: Any) -> frozenset[str]:
    """The letters that example inputs are a function of: N, or H and W where its parameters are called so."""
    if not callable(given):
        return frozenset()
    names = _parameters(given).keys()
    return frozenset({"H", "W"} | (names & {"N"}) if names >= {"H", "W"} else {"N"})


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    """None of a function that does not say them."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def inputs_at(model: nn.Module, given: Any, lengths: Lengths, keywords: Mapping[str, Any] | None = None) -> Given:
    """The example inputs of `model` that a user gives, as values or as a function of N, or of H and W.

    Raises:
        UsageError: a letter has no number, or the function raises.
    """
    if not callable(given):
        return example_inputs(model, given, keywords)
    letters = letters_of(given)
    if "N" in letters and lengths.tokens is None:
        raise UsageError("example_inputs: it is a function of N, and N has no number; give --N (N=… in Python)")
    if "H" in letters and lengths.size is None:
        raise UsageError("example_inputs: it is a function of H and W; give --size (size=… in Python)")
    numbers = {letter: lengths.letters[letter] for letter in sorted(letters)}
    try:
        values = given(**numbers) if "H" in letters else given(lengths.tokens)
    except Exception as error:
        told = ", ".join(map(str, numbers.values()))
        raise UsageError(f"example_inputs({told}) raised {raised(error)}") from error
    return example_inputs(model, values, keywords)


def example_inputs(model: nn.Module, given: Any, keywords: Mapping[str, Any] | None = None) -> Given:
    """What a user gives: a tuple or list is positional, a dictionary keywords, everything else the only input.

    A tuple or list of whole numbers is the shape of one input, and several such are those of several, as in torchinfo:
    token ids where `model` looks it up in a table, else float32.
    """
    extra = dict(keywords or {})
    if given is None:
        return Given((), extra)
    if isinstance(given, Given):
        return given
    if isinstance(given, Mapping):
        return Given((), {str(name): value for name, value in given.items()} | extra)
    if isinstance(given, tuple | list) and not hasattr(given, "_fields"):
        shapes = [given] if _is_shape(given) else given if given and all(map(_is_shape, given)) else []
        if shapes:
            made = tuple(noise(one, "cpu") for one in shapes)
            return _with_token_ids(model, Given(made, extra), made)
        return Given(tuple(given), extra)
    return Given((given,), extra)


def _is_shape(given: Any) -> bool:
    return isinstance(given, tuple | list) and bool(given) and all(type(one) is int for one in given)


def _with_token_ids(model: nn.Module, given: Given, shaped: Sequence[Tensor]) -> Given:
    """`given`, whose tensors `shaped` were made of shapes without a dtype: int64 where the model looks them up."""
    found = looked_up(model, *given, shaped) if shaped else []
    ids = {id(tensor) for tensor, is_looked_up in zip(shaped, found, strict=True) if is_looked_up}
    if not ids:
        return given
    whole = lambda one: torch.zeros_like(one, dtype=torch.int64) if id(one) in ids else one  # noqa: E731 - one line
    return Given(*pytree.tree_map_only(Tensor, whole, tuple(given)))


def noise(shape: Sequence[int], device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal noise with a seed of its own, which leaves the global random state alone; on `meta` no elements."""
    if device == "meta":  # drawing there imports torch's compiler
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    return torch.randn(tuple(shape), dtype=dtype, device=device, generator=torch.Generator(device).manual_seed(0))


_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*\Z")
DTYPES: Final = {
    name: getattr(torch, name)
    for name in (
        "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
    )
}  # fmt: skip
_MOST_ELEMENTS: Final = 2**40


def inputs_from(
    texts: Sequence[str], letters: Mapping[str, int | None], device: str, model: nn.Module | None = None
) -> Given:
    """The inputs that `--input` names, on `device`: numbers drawn from a normal distribution, zeros of whole numbers.

    A shape without a dtype is float32, or token ids where the `model` looks it up in a table.

    Args:
        texts: `[NAME=]SHAPE[:DTYPE]`; a NAME with dots is a place inside an input, and what is no shape a plain value.
            Strings are quoted.
        letters: what a letter in a shape stands for: N, H, W and B.
        device: `meta` makes tensors without elements.
        model: what takes them; None where every shape has its dtype.

    Raises:
        UsageError: a text is none of these, or a letter has no number.
    """
    args: list[Any] = []
    named: dict[str, Any] = {}
    shaped: list[Tensor] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if equals and not _NAME.match(name):
            raise _refused(text, _EXPECTED)
        try:
            found: Any = text if not equals or SHAPE.match(value) else read_value(value)
        except SpecError:
            raise _refused(text, _EXPECTED) from None
        if found is text:
            found, has_dtype = _tensor(text, value if equals else name, letters, device)
            shaped += [] if has_dtype else [found]
        elif isinstance(found, str) and value[0] not in "\"'":
            raise _refused(text, _EXPECTED)
        if equals:
            _put(named, name.split("."), found, text)
        else:
            args.append(found)
    given = Given(tuple(args), {name: _sequences(value) for name, value in named.items()})
    return given if model is None else _with_token_ids(model, given, shaped)


def letters_in(texts: Sequence[str]) -> frozenset[str]:
    """The letters in the shapes of these inputs."""
    shapes = (SHAPE.match(text.rpartition("=")[2]) for text in texts)
    sides = {side for shape in shapes if shape is not None for side in SIDES.split(shape["sides"])}
    return frozenset(side for side in sides if side.isalpha())


# Of inputs by the first layer.
_SUPPOSED: Final = Lengths(tokens=128, size=(224, 224))


class OwnInputs(Protocol):
    """The inputs of a module that nobody gives: by its first layer, or the example inputs of an exported program."""

    @property
    def letters(self) -> frozenset[str]:
        """The letters in them: B, and N, or H and W."""

    @property
    def note(self) -> str | None:
        """Where they come from."""

    def lengths(self, given: Lengths) -> Lengths:
        """The usual lengths where `given` has none."""

    def function(self, module: nn.Module) -> Any:
        """They as a function of their letters; values where there are none."""

    def values(self, lengths: Lengths, device: str, samples: int | None = None) -> Given:
        """They at these lengths, of so many samples."""


class SupposedInput(NamedTuple):
    """The only input of a module, as its first layer takes it."""

    text: str
    """As after `--input`: `BxN:int64`."""
    layer: str
    """`Embedding(1000, 64)`."""

    @property
    def letters(self) -> frozenset[str]:
        """The letters in its shape."""
        return letters_in((self.text,))

    @property
    def note(self) -> str:
        return f"{SUPPOSED}, {self.layer}, as --input {self.text} gives it"

    def lengths(self, given: Lengths) -> Lengths:
        tokens = (given.tokens or _SUPPOSED.tokens) if "N" in self.letters else given.tokens
        return Lengths(tokens, (given.size or _SUPPOSED.size) if "H" in self.letters else given.size)

    def function(self, module: nn.Module) -> Callable[..., Given]:
        device = str(next((parameter.device for parameter in module.parameters()), "cpu"))
        if "H" in self.letters:
            return lambda H, W: self.values(Lengths(size=(H, W)), device)
        return lambda N: self.values(Lengths(N), device)

    def values(self, lengths: Lengths, device: str, samples: int | None = None) -> Given:
        return inputs_from((self.text,), lengths.letters | {"B": samples or 1}, device)


# Sides of images on which small networks are trained, and larger ones.
_OTHER_SIDES: Final = (28, 32, 64, 96, 112, 128, 160, 192, 256, 299, 384, 512)


def at_usual_size(
    count: Callable[[Lengths], Ledger], supposed_of: Callable[[], OwnInputs | None], lengths: Lengths
) -> Ledger:  # fmt: skip
    """What `count` gives at these lengths; of images that nobody gave, at the first usual size at which it runs.

    `supposed_of` gives the supposed input after a count.

    Raises:
        UsageError: it runs at none; the message is that of the first, with the input that was tried.
    """
    try:
        return count(lengths)
    except UsageError as error:
        supposed = supposed_of()
        if not isinstance(supposed, SupposedInput):
            raise
        if isinstance(error, OwnError) and "H" in supposed.letters and lengths.size is None:
            for side in _OTHER_SIDES:
                with suppress(UsageError):
                    ledger = count(lengths._replace(size=(side, side)))
                    return ledger.with_note(f"it does not run on 224×224, and is counted on {side}×{side}")
        raise _of_supposed(error, supposed) from error


def _of_supposed(error: UsageError, supposed: SupposedInput) -> UsageError:
    """`error` of a run on an input that nobody gave, which it says."""
    usual = {"N": _SUPPOSED.tokens, "H": 224, "W": 224, "B": 1}
    tried = SIDES.split(SHAPE.match(supposed.text)["sides"])  # type: ignore[index]
    shape = "x".join(str(usual.get(side, side)) for side in tried)
    smaller = "x".join(str({"H": 28, "W": 28, "B": 1, "N": 16}.get(side, side)) for side in tried)
    return type(error)(
        f"{error}; no input was given, and {shape} was tried, of its first layer {supposed.layer}: give its own, as in "
        f"--input {smaller}"
    )


def supposed_input(module: nn.Module) -> OwnInputs | None:
    """Those of an exported program; else the only input of a module, by its first layer with parameters.

    None where there are several or it is unknown. The first layer is the first that the module's constructor makes.
    """
    if (found := getattr(module, "xfcost_inputs", None)) is not None:
        return found
    required = [
        one
        for one in _parameters(module.forward).values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    layers = [*module.modules()]
    # parameters of a module with parts, such as a class token, are no layer
    leaves = (one for one in layers if _sides_of(one) or not [*one.children()])
    first = next((one for one in leaves if next(one.parameters(), None) is not None), None)
    if len(required) != 1 or first is None or (sides := _sides_of(first)) is None:
        return None
    weights = [*first.parameters()]
    if any(is_lazy(one) for one in weights):
        return None
    flat = any(isinstance(one, nn.Flatten) for one in layers[: layers.index(first)])
    text = sides.replace("BxN", "B") if flat and isinstance(first, nn.Linear) else sides
    dtype = "int64" if isinstance(first, nn.Embedding) else str(weights[0].dtype).removeprefix("torch.")
    shown = f"{type(first).__name__}({first.extra_repr()})"
    return SupposedInput(text if dtype == "float32" else f"{text}:{dtype}", shown)


def _sides_of(layer: nn.Module) -> str | None:
    """The input of a layer; None of a kind that is not known here."""
    match layer:
        case nn.Embedding():
            return "BxN"
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return f"Bx{layer.in_channels}x{('N', 'HxW', '8xHxW')[len(layer.kernel_size) - 1]}"
        case nn.MultiheadAttention() | nn.RNNBase():
            width = layer.embed_dim if isinstance(layer, nn.MultiheadAttention) else layer.input_size
            return f"{'BxN' if layer.batch_first else 'NxB'}x{width}"
        case nn.Linear():
            return f"BxNx{layer.in_features}"
        case nn.LayerNorm():
            return f"BxNx{'x'.join(map(str, layer.normalized_shape))}"
    return None


_EXPECTED: Final = (
    "expected a shape, as in 1x3x224x224, with the name of the parameter and the dtype where they are needed: "
    "input_ids=1xN:int64"
)


def _refused(text: str, why: str) -> UsageError:
    return UsageError(f"--input {printable(text, 200)}: {why}")


def _tensor(text: str, value: str, letters: Mapping[str, int | None], device: str) -> tuple[Tensor, bool]:
    """The tensor of a shape, and whether its dtype is given."""
    found = SHAPE.match(value)
    if found is None:
        raise _refused(text, _EXPECTED)
    dtype = DTYPES.get(found["dtype"] or "float32")
    if dtype is None:
        raise _refused(text, f"expected a dtype out of {', '.join(DTYPES)}")
    shape, too_large = [], f"expected at most {_MOST_ELEMENTS:,} elements; no tensor holds more"
    for side in SIDES.split(found["sides"]):
        if len(side) > len(str(_MOST_ELEMENTS)):
            raise _refused(text, too_large)
        if not side.isdigit() and side not in letters:
            raise _refused(text, f"{side} is not a letter for a size; expected one of {', '.join(letters)}")
        number = int(side) if side.isdigit() else letters[side]
        if number is None:
            raise _refused(text, f"{side} has no number; give {'--size' if side in {'H', 'W'} else '--N'}")
        shape.append(number)
    if math.prod(shape) > _MOST_ELEMENTS:
        raise _refused(text, too_large)
    if dtype.is_floating_point or dtype.is_complex:
        return noise(shape, device, dtype), found["dtype"] is not None
    return torch.full(shape, dtype is torch.bool, dtype=dtype, device=device), True


def _put(named: dict[str, Any], path: list[str], value: Any, text: str) -> None:
    """Put a value at its place: inside dictionaries for now."""
    for part in path[:-1]:
        named = named.setdefault(part, {})
        if not isinstance(named, dict):
            raise _refused(text, f"there is a value at {part} already")
    if path[-1] in named:
        raise _refused(text, f"{'.'.join(path)} is given twice")
    named[path[-1]] = value


def _sequences(value: Any) -> Any:
    """`value`, every dictionary of 0, 1, 2, … in it a tuple."""
    if not isinstance(value, dict):
        return value
    inner = {key: _sequences(one) for key, one in value.items()}
    numbers = [str(number) for number in range(len(inner))]
    return tuple(inner[number] for number in numbers) if sorted(inner) == sorted(numbers) and inner else inner


_DEFAULT_TOKENS: Final = 512
_WAVE: Final = 16_000


def usual_inputs(model: Any, lengths: Lengths, samples: int, device: str) -> Given:
    """The inputs of a model, by the name of its main input.

    A text has N tokens, those whose places the features of an image take among them. N is the decoder's tokens where
    the encoder takes images or speech.

    Raises:
        UsageError: its main input is another, its part for images does not run, or N is not above an image's tokens.
    """
    config, main = model.config, getattr(model, "main_input_name", "input_ids")
    decodes = _decoder_input(model)
    if lengths.text_alone and not decodes and _has_features_in_text(model):
        return Given((), {"input_ids": _made("input_ids", model, samples, lengths.tokens, device)})
    if main not in {"input_ids", "pixel_values", "input_features", "input_values"}:
        raise UsageError(
            f"{type(model).__name__}: its main input is {main}; say its shape by --input {main}=…, and the others"
        )
    number = None if decodes and main != "input_ids" else lengths.tokens
    tensors: dict[str, Any] = {main: _made(main, model, samples, number, device, lengths.size)}
    beside = main in {"input_ids", "pixel_values"}
    images, places = images_of(model, samples, device, lengths.size) if beside else ({}, 0)
    if images:
        text = _made("input_ids", model, samples, number, "cpu")
        if text.shape[1] <= places:
            raise OwnError(
                f"--N {text.shape[1]}: {places} of the tokens are an image's; expected --N from {places + 1}, or "
                "--input input_ids=BxN:int64 for text only"
            )
        text[:, :places] = _of(config, *_IMAGE_TOKEN) or 0
        has_grid = _GRID in images
        tensors |= images | {"input_ids": with_numbers(text, device) if has_grid else text.to(device)}
        if has_grid and "mm_token_type_ids" in _parameters(model.forward):  # 1 of an image
            kinds = (torch.arange(text.shape[1]) < places).long().expand(samples, -1)
            tensors["mm_token_type_ids"] = with_numbers(kinds, device)
    if decodes:
        start = getattr(config, "decoder_start_token_id", None) or 0
        tokens = tensors["input_ids"].shape[1] if "input_ids" in tensors else _tokens(model, lengths.tokens)
        tensors[decodes] = torch.full((samples, tokens), start, dtype=torch.int64, device=device)
    if decodes == "decoder_input_values":  # SpeechT5, whose base model has no layers in front of both stacks
        is_base = model.base_model is model
        width = config.hidden_size if is_base else config.num_mel_bins
        tensors[decodes] = noise((samples, tokens, width), device, model.dtype)
        if is_base:
            tensors[main] = noise((samples, tokens, width), device, model.dtype)
    name = decodes or "input_ids"
    return Given((), tensors | ({name: _of_codes(model, tensors[name])} if name in tensors else {}))


def _of_codes(model: Any, ids: Tensor) -> Tensor:
    """Token ids as a decoder takes them that reads several codes of sound for each token."""
    decoder = getattr(model, "get_decoder", lambda: None)()
    parts = [*decoder.modules()] if isinstance(decoder, nn.Module) else []
    tables = (getattr(part, "embed_tokens", None) for part in parts)
    if (books := next((one for one in tables if isinstance(one, nn.ModuleList)), None)) is not None:
        return ids.repeat(len(books), 1)  # MusicGen: a table and a row of each
    children = [*parts[0].children()] if parts else []
    if any(isinstance(part, nn.Embedding) for part in children):
        return ids
    buffers = (one for part in children for one in part.named_buffers(recurse=False))
    found = next((len(one) for name, one in buffers if name.endswith("offsets") and one.dim() == 1), None)
    return ids if found is None else ids[..., None].repeat(1, 1, found)  # one embedding, with an offset for each


def text_tokens(model: Any, lengths: Lengths) -> int | None:
    """N of the text that `usual_inputs` makes, or of other inputs where it is given; None of images only.

    Without N it is as many as the model has positions for, at most 512 behind the image.
    """
    if lengths.tokens is not None or getattr(model, "main_input_name", "input_ids") != "input_ids":
        return lengths.tokens
    places = 0
    with suppress(UsageError):  # raised again where the image is among the inputs
        _, places = images_of(model, 1, str(model.device), lengths.size)
    return min(_DEFAULT_TOKENS + places, positions_of(model) or _DEFAULT_TOKENS + places)


def usual_letters(model: Any, lengths: Lengths) -> frozenset[str]:
    """The letters in the inputs that `usual_inputs` makes: B, N where it has a number, H and W of an image."""
    of_image = getattr(model, "main_input_name", "input_ids") == "pixel_values"
    has_image = of_image or next(_possible_images(model, 1, "meta", None), None) is not None
    has_n = lengths.tokens is not None and (not of_image or _decoder_input(model) is not None)
    return frozenset("B" + "N" * has_n + "HW" * has_image)


def _decoder_input(model: Any) -> str | None:
    """What the decoder of an encoder–decoder model reads; None of other models."""
    takes = _parameters(model.forward) if getattr(model.config, "is_encoder_decoder", False) else {}
    return next((name for name in ("decoder_input_ids", "decoder_input_values") if name in takes), None)


def _has_features_in_text(model: Any) -> bool:
    """Has it a method of transformers that finds the tokens whose places features of images or sound take?"""
    parts = (model, getattr(model, "base_model", model))
    return any(hasattr(one, name) for one in parts for name in ("get_placeholder_mask", "inputs_merger"))


_IMAGE_TOKEN: Final = ("image_token_id", "image_token_index")
_GRID: Final = "image_grid_thw"
_MERGED: Final = "spatial_merge_size"
_MOST_CROPS: Final = 5


def images_of(model: Any, samples: int, device: str, size: tuple[int, int] | None) -> tuple[dict[str, Any], int]:
    """An image of each sample, of a `size` or that of its config, and the tokens whose places its features take.

    Raises:
        UsageError: the model's part for images does not run, such as on `meta`.
    """
    failed: Exception | None = None
    features = getattr(model, "get_image_features", None)
    for images in _possible_images(model, samples, device, size):
        if features is None or not isinstance(_of(model.config, *_IMAGE_TOKEN), int):
            return images, 0
        try:
            with torch.no_grad(), WithoutPadding(), known_numbers(images.values()):
                made = features(**images)
        except Exception as error:  # noqa: BLE001 - the next may have the axes that it expects
            failed = error if failed is None or is_about_meta(error) else failed
            continue
        found = getattr(made, "pooler_output", made)
        found = made.last_hidden_state if found is None else found  # Llama 4 projects them in its forward
        parts = found if isinstance(found, tuple | list) else [found]
        return images, sum(part.numel() for part in parts) // (parts[0].shape[-1] * samples)
    if failed is not None:
        alone = "; --input input_ids=BxN:int64 counts only text"
        raise refused(model, failed, alone, UsageError if is_about_meta(failed) else OwnError) from failed
    return {}, 0


def _possible_images(model: Any, samples: int, device: str, size: tuple[int, int] | None) -> Iterator[dict[str, Any]]:
    """Images of a size, or of that in a model's config, as its signatures name them.

    These are patches of a grid, tiles, one image, crops.

    None of a model that does not take images of one size in addition to a text.
    """
    config, takes = model.config, _parameters(model.forward).keys()
    asked = _parameters(getattr(model, "get_image_features", None))
    nested = hasattr(config, "text_config") and getattr(config, "vision_config", config) is not None
    if not {"input_ids", "pixel_values"} <= takes or not (nested or _of(config, "image_size") is not None):
        return
    pixels = _made("pixel_values", model, samples, None, device, size)
    channels, height, width = pixels.shape[1:]
    if _GRID in takes:
        patch, frames, merged = (_of(config, name) or 1 for name in ("patch_size", "temporal_patch_size", _MERGED))
        if _GRID in asked and all(isinstance(one, int) for one in (patch, frames, merged)):
            rows, columns = (side // patch // merged * merged for side in (height, width))
            patches = noise((samples * rows * columns, channels * frames * patch**2), device, pixels.dtype)
            grid = {_GRID: with_numbers(torch.tensor([[1, rows, columns]] * samples), device)}
            yield {"pixel_values": patches} | grid
            yield {"pixel_values": patches.reshape(-1, channels * frames, patch, patch)} | grid
        return
    if "spatial_shapes" in asked:  # of images of several sizes, in rows of patches
        side = math.isqrt(_of(config, "num_patches"))
        shapes = with_numbers(torch.tensor([[side, side]] * samples), device)
        mask = with_numbers(torch.ones((samples, side**2), dtype=torch.int64), device)
        patches = noise((samples, side**2, channels * _of(config, "patch_size") ** 2), device, pixels.dtype)
        yield {"pixel_values": patches, "spatial_shapes": shapes, "pixel_attention_mask": mask}
        return
    if "aspect_ratio_ids" in takes:  # of one of the ratios of sides that its table has
        tiles = _of(config, "max_num_tiles")
        mask = torch.ones((samples, 1, tiles), dtype=torch.int64, device=device)
        tiled = pixels[:, None, None].expand(-1, 1, tiles, -1, -1, -1)
        yield {"pixel_values": tiled, "aspect_ratio_ids": mask[..., 0], "aspect_ratio_mask": mask}
        return
    sizes = {"image_sizes": with_numbers(torch.tensor([[height, width]] * samples), device)}  # here none is padded
    beside = sizes if "image_sizes" in asked else {}
    yield {"pixel_values": pixels} | beside
    for crops in range(1, _MOST_CROPS + 1):
        yield {"pixel_values": pixels[:, None].repeat(1, crops, 1, 1, 1)} | beside


def _of(config: Any, *names: str) -> Any:
    """The first of these fields that the config has, or the part of it that is of the same input."""
    inner = ("text_config", "vision_config", "audio_config", "encoder_config")
    for part in (config, *(getattr(config, one, None) for one in inner)):
        for name in names:
            found = getattr(part, name, None)
            if found is not None:
                return found
    return None


def positions_of(model: Any) -> int | None:
    """The most tokens of a text that a model of transformers has positions for; None where its config does not say."""
    config = getattr(model, "config", None)
    most = _of(config, "max_position_embeddings", "n_positions", "max_target_positions", "max_text_positions")
    if not isinstance(most, int) or most < 1:
        return None
    return scaled_positions(most, {name: _of(config, name) for name in POSITION_FIELDS})


def head_sharing_of(model: Any) -> HeadSharing | None:
    """The heads of a model of transformers by its config; None where that does not say, or layers differ.

    Its cache of MLA has latents that all heads read, and the keys of an indexer.
    """
    config = getattr(model, "config", None)
    heads = _of(config, "num_attention_heads", "n_head", "num_heads", "decoder_attention_heads")
    if not isinstance(heads, int) or heads < 1:
        return None
    if (rank := _of(config, "kv_lora_rank")) is not None:
        latents = {_of(config, "q_lora_rank"), rank, rank + (_of(config, "qk_rope_head_dim") or 0)}
        latents.add(_of(config, "index_head_dim"))
        return HeadSharing(heads, 1, whole=frozenset(latents - {None}))
    single = _of(config, "multi_query") and not _of(config, "new_decoder_architecture")
    try:
        kv_heads = 1 if single else _of(config, "num_key_value_heads", "num_kv_heads") or heads
        width = _of(config, "head_dim") or (_of(config, "hidden_size", "n_embd", "d_model") or 0) // heads
    except Exception:  # noqa: BLE001 - transformers refuses to read for all layers what differs between them (Gemma 4)
        return None
    keys, all_of_them = kv_heads * width, (heads + 2 * kv_heads) * width
    return HeadSharing(heads, kv_heads, {keys: keys, all_of_them: 2 * keys} if kv_heads < heads else {})


def _tokens(model: Any, tokens: int | None) -> int:
    return tokens or min(_DEFAULT_TOKENS, positions_of(model) or _DEFAULT_TOKENS)


_FREQUENCIES: Final = ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim")


def _made(
    name: str, model: Any, batch: int, tokens: int | None, device: str, size: tuple[int, int] | None = None
) -> torch.Tensor:
    config = model.config
    if name == "input_ids":
        return torch.zeros((batch, _tokens(model, tokens)), dtype=torch.int64, device=device)
    if name == "pixel_values":
        own = _of(config, "image_size") or _of(getattr(config, "backbone_config", None), "image_size") or 224
        sides = size or ([own, own] if isinstance(own, int) else own)
        shape = (_of(config, "num_channels", "in_channels") or 3, *sides)
    elif name == "input_features":
        bins: Any = _of(config, *_FREQUENCIES) or 80
        frames: Any = tokens or 2 * (_of(config, "max_source_positions") or 500)
        first = next((layer for layer in model.modules() if _sides_of(layer) is not None), None)
        # the first layer of Whisper has a channel of each frequency; other layers, and fields, are of frames of them
        of_channels = isinstance(first, nn.Conv1d) and _of(config, _FREQUENCIES[0]) is not None
        shape = (bins, frames) if of_channels else (frames, bins)
    else:  # a wave; a spectrogram where the model has a number of frequencies and no convolutions over a wave
        bins, frames = getattr(config, "num_mel_bins", None), getattr(config, "max_length", None)
        shape = (frames, bins) if bins and frames and not hasattr(config, "conv_kernel") else (tokens or _WAVE,)
        if hasattr(config, "codebook_size"):  # EnCodec and its kin have an axis of channels
            shape = (getattr(config, "audio_channels", 1), *shape)
    weights = (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    return noise((batch, *shape), device, next(weights, torch.float32))
