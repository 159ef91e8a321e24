"""How arrays of NumPy, torch and JAX reach the library and how its outputs become theirs.

An array crosses as a DLPack tensor and the number of its dtype: the narrow formats of ml_dtypes
(and, before torch 2.9, of torch) do not cross DLPack, so they go as bytes. The library alone
decides the shapes, dtypes and strides of outputs; the caller's framework allocates them.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any, NamedTuple, Optional, Sequence

import ml_dtypes
import numpy

from . import _native
from ._arguments import maybe_text

# Numbers of the library's dtypes by their short names, in the library's order.
NUMBERS = {str(name): number for number, name in enumerate(_native.function("dtype_names")())}
_E2M1 = NUMBERS["e2m1"]
_BYTES = (NUMBERS["i8"], NUMBERS["u8"])  # dtypes that may hold two e2m1 codes

# The reference package's names of formats.
_FORMATS = {
    "e4m3": NUMBERS["e4m3"],
    "e2m1": _E2M1,
    "fp32": NUMBERS["f32"],
    "bf16": NUMBERS["bf16"],
    "fp16": NUMBERS["f16"],
}

_DLPACK_CPU = 1
_DLPACK_DEVICES = {"cpu": _DLPACK_CPU, "cuda": 2, "npu": 12}


class _UnknownDType(ValueError):
    """An array of a dtype that the library does not have."""

    def __init__(self, op: str, name: str, dtype: Any, known: str) -> None:
        super().__init__(f"[{op}] {name} dtype must be one of {known}, got {dtype}")
        self.name = name
        self.dtype = dtype


def format_number(op: str, fmt: str, allowed: Sequence[str]) -> int:
    """The number of the dtype that `fmt` names."""
    if fmt not in allowed:
        rule = ", ".join(allowed[:-1]) + " or " + allowed[-1]
        raise ValueError(f"[{op}] fmt must be {rule}, got {fmt}")
    return _FORMATS[fmt]


class _Output(NamedTuple):
    """What the library says of one output."""

    dtype: int
    storage: int  # elements, padding included
    shape: tuple
    strides: tuple  # in elements
    dense: bool  # row-major without padding


class _Geometry(NamedTuple):
    """Everything about an input but its memory."""

    dtype: int
    shape: tuple
    strides: tuple
    stride_unit: int  # what one element counts in `strides`
    device: tuple  # DLPack's type and the index


_HOST = (_DLPACK_CPU, 0)


class _NumPy:
    """Host arrays of NumPy and ml_dtypes."""

    name = "NumPy"

    def __init__(self) -> None:
        # dtype -> (number, the dtype it crosses as or None, bytes of an element)
        self._dtypes = {}
        # number -> (dtype of an output, the dtype it crosses as or None)
        self._outputs = {}
        plain = {"f32": "float32", "f16": "float16", "i8": "int8", "i16": "int16", "i32": "int32",
                 "i64": "int64", "u8": "uint8", "u32": "uint32"}
        for short, name in plain.items():
            self._add(short, numpy.dtype(name), None)
        narrow = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
                  "e8m0": "float8_e8m0fnu"}
        for short, name in narrow.items():
            dtype = numpy.dtype(getattr(ml_dtypes, name))
            self._add(short, dtype, numpy.dtype(f"uint{8 * dtype.itemsize}"))
        self._add("bool", numpy.dtype("bool"), numpy.dtype("uint8"))
        self._outputs[_E2M1] = (numpy.dtype("int8"), None)
        self._fp4 = numpy.dtype(ml_dtypes.float4_e2m1fn)

    def _add(self, short: str, dtype: Any, carrier: Any) -> None:
        self._dtypes[dtype] = (NUMBERS[short], carrier, dtype.itemsize)
        self._outputs[NUMBERS[short]] = (dtype, carrier)

    def owns(self, array: Any) -> bool:
        # A mask would be lost without a word.
        return isinstance(array, numpy.ndarray) and not isinstance(array, numpy.ma.MaskedArray)

    def read(self, op: str, name: str, array: Any, codes: bool) -> tuple:
        """What tvm-ffi takes for the array, and its `_Geometry`."""
        dtype = array.dtype
        found = self._dtypes.get(dtype)
        if found is None:
            if dtype != self._fp4:
                raise _UnknownDType(op, name, dtype, self._names())
            array = _pack_fp4(op, name, array)
            found = (_E2M1, None, 1)
        number, carrier, itemsize = found
        if codes and number in _BYTES:
            number = _E2M1
        tensor = array if carrier is None else array.view(carrier)
        if not tensor.flags.writeable:
            tensor = numpy.asarray(_WritableAlias(tensor))
        return tensor, (number, array.shape, array.strides, itemsize, _HOST)

    def read_out(self, op: str, name: str, array: Any, codes: bool) -> tuple:
        if not array.flags.writeable:
            raise ValueError(f"[{op}] {name} must be writable, got a read-only array")
        if array.dtype == self._fp4:
            raise ValueError(f"[{op}] {name} dtype must be int8 for e2m1 codes, got {array.dtype}")
        return self.read(op, name, array, codes)

    def maker(self, output: _Output, device: tuple) -> tuple:
        """A call that makes the output, the dtype it crosses as or None, and the dtype's number."""
        dtype, carrier = self._outputs[output.dtype]
        if output.dense:
            make = functools.partial(numpy.empty, output.shape, dtype)
        else:
            strides = tuple(stride * dtype.itemsize for stride in output.strides)

            def make() -> Any:
                return numpy.ndarray(output.shape, dtype, numpy.empty(output.storage, dtype), 0,
                                     strides)

        return make, carrier, output.dtype

    def finish(self, arrays: list) -> list:
        return arrays

    def _names(self) -> str:
        return ", ".join(str(dtype) for dtype in self._dtypes) + ", float4_e2m1fn"


class _Jax(_NumPy):
    """Arrays of JAX in host memory: immutable, without strides."""

    name = "JAX"

    def owns(self, array: Any) -> bool:
        jax = sys.modules.get("jax")
        return jax is not None and isinstance(array, jax.Array)

    def read(self, op: str, name: str, array: Any, codes: bool) -> tuple:
        import jax

        if not isinstance(array, jax.core.Tracer):
            devices = array.devices()
            if len(devices) != 1 or next(iter(devices)).platform != "cpu":
                where = ", ".join(sorted(str(device) for device in devices))
                raise ValueError(f"[{op}] {name} must lie on one CPU device of JAX, got {where}")
        return super().read(op, name, numpy.asarray(array), codes)

    def read_out(self, op: str, name: str, array: Any, codes: bool) -> tuple:
        raise ValueError(f"[{op}] {name} must be an array that can be written, got one of JAX")

    def finish(self, arrays: list) -> list:
        import jax

        return [jax.numpy.asarray(array) for array in arrays]


def _crosses(tensor: Any) -> bool:
    """Whether tvm-ffi takes a tensor of this dtype as an argument."""
    try:
        _native.function("dtype_names")(tensor)  # looks at no argument
    except Exception:  # noqa: BLE001: whatever it is, the dtype goes as bytes
        return False
    return True


class _Torch:
    """Tensors of torch; those in CUDA memory run on torch's current stream."""

    name = "torch"

    def __init__(self) -> None:
        self._dtypes: dict = {}
        self._outputs: dict = {}
        self._devices: dict = {}  # torch.device -> DLPack's type and the index

    def owns(self, array: Any) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(array, torch.Tensor)

    def _fill(self) -> None:
        import torch

        names = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8",
                 "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u32": "uint32",
                 "bool": "bool", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
                 "e8m0": "float8_e8m0fnu", "e2m1": "float4_e2m1fn_x2"}
        dtypes = {}
        outputs = {}
        for short, name in names.items():
            dtype = getattr(torch, name, None)  # the narrowest are younger than torch 2.0
            if dtype is None:
                continue
            narrow = short in ("e4m3", "e5m2", "e8m0", "e2m1", "bool")
            if short in ("e4m3", "e5m2", "e8m0") and _crosses(torch.empty(1, dtype=dtype)):
                narrow = False  # saves a view, a microsecond
            carrier = torch.uint8 if narrow else None
            dtypes[dtype] = (NUMBERS[short], carrier)
            outputs[NUMBERS[short]] = (dtype, carrier)
        outputs[_E2M1] = (torch.int8, None)
        # Whole, and in this order: other threads read them meanwhile.
        self._outputs = outputs
        self._dtypes = dtypes

    def _number(self, op: str, name: str, dtype: Any) -> tuple:
        if not self._dtypes:
            self._fill()
        found = self._dtypes.get(dtype)
        if found is None:
            raise _UnknownDType(op, name, dtype, ", ".join(str(known) for known in self._dtypes))
        return found

    def _place(self, op: str, name: str, device: Any) -> tuple:
        kind = _DLPACK_DEVICES.get(device.type)
        if kind is None:
            raise ValueError(f"[{op}] {name} must lie in cpu, cuda or npu memory, got {device}")
        place = self._devices[device] = (kind, device.index or 0)
        return place

    def read(self, op: str, name: str, array: Any, codes: bool) -> tuple:
        number, carrier = self._dtypes.get(array.dtype) or self._number(op, name, array.dtype)
        if codes and number in _BYTES:
            number = _E2M1
        place = self._devices.get(array.device) or self._place(op, name, array.device)
        tensor = array.detach() if array.requires_grad else array
        if carrier is not None:
            tensor = tensor.view(carrier)
        return tensor, (number, array.shape, array.stride(), 1, place)

    def read_out(self, op: str, name: str, array: Any, codes: bool) -> tuple:
        return self.read(op, name, array, codes)

    def maker(self, output: _Output, device: tuple) -> tuple:
        import torch

        dtype, carrier = self._outputs[output.dtype]
        kind, index = device
        where = torch.device("cpu" if kind == _DLPACK_CPU
                             else f"{'cuda' if kind == 2 else 'npu'}:{index}")
        # empty_strided is the shortest way to a tensor of torch's own. On memory that tvm-ffi's
        # allocator gives, record_stream does nothing.
        if output.dense:
            make = functools.partial(torch.empty_strided, output.shape, output.strides,
                                     dtype=dtype, device=where)
        else:
            storage = functools.partial(torch.empty_strided, (output.storage,), (1,), dtype=dtype,
                                        device=where)

            def make() -> Any:
                return storage().as_strided(output.shape, output.strides)

        return make, carrier, output.dtype

    def finish(self, arrays: list) -> list:
        return arrays


class _WritableAlias:
    """The memory of a read-only array under a writable name: DLPack refuses read-only memory, and
    the library reads inputs only."""

    def __init__(self, array: Any) -> None:
        self._array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def _pack_fp4(op: str, name: str, array: Any) -> Any:
    """float4_e2m1fn holds one code a byte; the library takes two, the even one in the low half."""
    if array.ndim == 0 or array.shape[-1] % 2 != 0:
        raise ValueError(f"[{op}] {name} must have an even number of columns, got {array.shape}")
    codes = numpy.ascontiguousarray(array).view(numpy.uint8) & 0x0F
    return codes[..., 0::2] | codes[..., 1::2] << 4


_FRAMEWORKS = (_NumPy(), _Torch(), _Jax())
_by_type: dict = {}


def _framework(op: str, name: str, array: Any) -> Any:
    for framework in _FRAMEWORKS:
        if framework.owns(array):
            _by_type[type(array)] = framework
            return framework
    raise TypeError(f"[{op}] {name} must be an array of NumPy, torch or JAX, "
                    f"got {type(array).__name__}")


def _spec_numbers(op: str, name: str, geometry: _Geometry) -> tuple:
    unit = geometry.stride_unit
    for stride in geometry.strides:
        if stride % unit != 0:
            raise ValueError(f"[{op}] {name} strides must be multiples of its {unit}-byte "
                             f"elements, got {geometry.strides} bytes")
    strides = (stride // unit for stride in geometry.strides)
    return (geometry.dtype, *geometry.device, *geometry.shape, *strides)


def _row_major(shape: Sequence[int]) -> tuple:
    return tuple(math.prod(shape[dim + 1:]) for dim in range(len(shape)))


def _read_outputs(numbers: tuple) -> tuple:
    outputs = []
    while numbers:
        dtype, storage, rank = numbers[:3]
        shape, strides = numbers[3:3 + rank], numbers[3 + rank:3 + 2 * rank]
        dense = strides == _row_major(shape) and storage == math.prod(shape)
        outputs.append(_Output(dtype, storage, shape, strides, dense))
        numbers = numbers[3 + 2 * rank:]
    return tuple(outputs)


class Op:
    """One op of the extension: its arrays in, its arrays out, the framework in between.

    Args:
        name: the op's name in the extension.
        op: its name in messages.
        inputs: names of the arrays that go in, and of those that come out; a name in `codes` may
            be int8 or uint8, holding two e2m1 codes a byte; one in `changed` is written to as well.
        parameters: name and check (of `_arguments`) of everything else.
    """

    def __init__(self, name: str, op: str, inputs: Sequence[str], outputs: Sequence[str],
                 codes: Sequence[str] = (), parameters: Sequence[tuple] = (),
                 changed: Sequence[str] = ()) -> None:
        self._op = op
        self._parameters = tuple(parameters)
        self._inputs = tuple((argument, argument in codes, argument in changed)
                             for argument in inputs)
        self._outputs = tuple((argument, argument in codes) for argument in outputs)
        self._first = (*inputs, *outputs)[0]  # decides the framework
        self._spec = _native.function(name + "_spec")
        self._out = _native.function(name + "_out")
        # A spec depends on nothing but its arguments, and costs more than the rest of a small call.
        self._infer = functools.lru_cache(maxsize=1024)(self._infer_outputs)

    def _infer_outputs(self, framework: Any, geometries: tuple, parameters: tuple) -> list:
        specs = [_spec_numbers(self._op, name, _Geometry(*geometry))
                 for (name, _, _), geometry in zip(self._inputs, geometries)]
        outputs = _read_outputs(tuple(self._spec(*specs, *parameters)))
        return [framework.maker(output, geometries[0][4]) for output in outputs]

    def __call__(self, arrays: tuple, parameters: tuple, backend: Optional[str] = None,
                 out: Optional[tuple] = None) -> Sequence[Any]:
        # Arguments are looked at only when the extension has not understood them: a call is short.
        try:
            return self._run(arrays, parameters, backend, out)
        except _UnknownDType as error:
            raise ValueError(self._refusal(error, arrays or out or (), parameters)) from None
        except (TypeError, OverflowError):
            given = (*parameters, backend)
            checks = (*self._parameters, ("backend", maybe_text))
            checked = tuple(check(self._op, name, value)
                            for (name, check), value in zip(checks, given))
            if [type(value) for value in checked] == [type(value) for value in given]:
                raise  # the arrays were wrong
        return self._run(arrays, checked[:-1], checked[-1], out)

    def _run(self, arrays: tuple, parameters: tuple, backend: Optional[str],
             out: Optional[tuple]) -> Sequence[Any]:
        if out is not None:
            self._check_outputs(out)
        first = arrays[0] if out is None else (*arrays, *out)[0]
        kind = type(first)
        framework = _by_type.get(kind) or _framework(self._op, self._first, first)
        tensors: list = []
        geometries = []
        for (name, codes, changed), array in zip(self._inputs, arrays):
            if type(array) is not kind:
                self._check_framework(framework, name, array)
            read = framework.read_out if changed else framework.read
            tensor, geometry = read(self._op, name, array, codes)
            tensors += (tensor, geometry[0])
            geometries.append(geometry)
        targets: list = []
        if out is None:
            makers = self._infer(framework, tuple(geometries), parameters)
            results = []
            for make, carrier, dtype in makers:
                array = make()
                results.append(array)
                targets += (array if carrier is None else array.view(carrier), dtype)
            self._out(*targets, *tensors, *parameters, backend)
            return framework.finish(results)
        for (name, codes), array in zip(self._outputs, out):
            self._check_framework(framework, name, array)
            tensor, geometry = framework.read_out(self._op, name, array, codes)
            targets += (tensor, geometry[0])
        self._out(*targets, *tensors, *parameters, backend)
        return out

    def _refusal(self, error: _UnknownDType, arrays: tuple, parameters: tuple) -> str:
        """What to say of a dtype that the library does not have: the op's own words about one that
        it has and the op refuses, for they list what the op takes. Strides are not looked at."""
        beginning = f"[{self._op}] {error.name} must have dtype "
        for candidate in NUMBERS.values():
            specs = []
            for (name, codes, *_), array in zip(self._inputs or self._outputs, arrays):
                try:
                    framework = _by_type.get(type(array)) or _framework(self._op, name, array)
                    number = framework.read(self._op, name, array, codes)[1][0]
                except _UnknownDType:
                    number = candidate
                specs.append((number, *_HOST, *array.shape, *_row_major(array.shape)))
            try:
                self._spec(*specs, *parameters)
            except Exception as refused:  # noqa: BLE001: only one kind is of use here
                rule, _, _ = str(refused).rpartition(", got ")
                if rule.startswith(beginning):
                    return f"{rule}, got {error.dtype}"
        return str(error)

    def _check_outputs(self, out: Any) -> None:
        if isinstance(out, (tuple, list)) and len(out) == len(self._outputs):
            return
        names = ", ".join(name for name, _ in self._outputs)
        given = f"{len(out)} arrays" if isinstance(out, (tuple, list)) else type(out).__name__
        raise ValueError(f"[{self._op}] out must be a tuple ({names}), got {given}")

    def _check_framework(self, framework: Any, name: str, array: Any) -> None:
        if (_by_type.get(type(array)) or _framework(self._op, name, array)) is not framework:
            raise TypeError(f"[{self._op}] {name} must be an array of {framework.name} like "
                            f"{self._first}, got {type(array).__module__}."
                            f"{type(array).__name__}")


class InPlaceOp(Op):
    """One op that changes arrays in place and returns nothing.

    Args:
        changed: names of the arrays that are changed; the others as for `Op`.
    """

    def __init__(self, name: str, op: str, changed: Sequence[str], inputs: Sequence[str] = (),
                 parameters: Sequence[tuple] = ()) -> None:
        super().__init__(name, op, inputs, changed, parameters=parameters)
        self._first = changed[0]

    def __call__(self, changed: tuple, inputs: tuple, parameters: tuple,  # type: ignore[override]
                 backend: Optional[str] = None) -> None:
        super().__call__(inputs, parameters, backend, changed)
