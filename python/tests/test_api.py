"""The C++ headers and the Python package say the same: names, arguments, order, defaults."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re

import pytest
from conftest import ROOT

import tilekernels
from tilekernels import config, moe, quant

HEADERS = ROOT / "include" / "tilekernels"

# What one C++ argument is in Python. `_call` is on every op; `_options` are those of the casts.
FLAGS = {
    "use_tma_aligned_col_major_sf": False,
    "round_sf": False,
    "use_packed_ue8m0": False,
    "use_e4m3_sf": False,
}
KEYWORDS = {"with_psum": False, "x_sf_layout": None, "sf_pitch": None, "amax_clamp": None, "backend": None}

# C++ arguments with another name in Python, where the reference package has that one.
RENAMED = {("cast_back", "out_dtype"): "fmt"}

# Python arguments that C++ lacks: of the reference package only.
PYTHON_ONLY = {
    "per_token_cast": ["stochastic_cast"],
    "cast_back": ["x_special_fmt"],
}

# C++ functions without a Python name, and why.
NOT_IN_PYTHON = {
    "sf_spec": "Python has no specs",
    "check_errors": "the stream is a handle, and there is a rule for the default; config has it",
}


def declarations(header: str) -> dict:
    """name -> list of overloads, each a list of (type, argument, default or None)."""
    text = (HEADERS / header).read_text()
    text = re.sub(r"//[^\n]*", "", text)
    found: dict = {}
    function = r"^[A-Za-z][\w:<>, ]*?[ &](\w+)\(((?:[^;{}]|\{\})*)\);"
    for match in re.finditer(function, text, re.MULTILINE):
        arguments = []
        for piece in re.split(r",(?![^<{]*[>}])", match.group(2)):
            piece = " ".join(piece.split())
            if not piece:
                continue
            declared, _, default = piece.partition(" = ")
            kind, _, name = declared.rpartition(" ")
            arguments.append((kind, name, default or None))
        found.setdefault(match.group(1), []).append(arguments)
    return found


def ops(header: str) -> dict:
    """The allocating forms, plain input first."""
    found = declarations(header)
    return {name: overloads[0] for name, overloads in found.items()
            if not name.endswith(("_spec", "_out")) and name not in NOT_IN_PYTHON}


def expected_arguments(name: str, arguments: list) -> list:
    """(argument, default, keyword only) of the Python function."""
    empty = inspect.Parameter.empty
    positional, keywords = [], []
    for kind, argument, default in arguments:
        if kind == "const CastOptions&":
            flags = [flag for flag in FLAGS if "block" not in name or flag != "use_e4m3_sf"]
            positional += [(flag, False) for flag in flags]
            keywords += ["sf_pitch", "amax_clamp"]
        elif kind == "const SfSource&":
            positional.append(("x_block_size", empty))
            keywords.append("x_sf_layout")
        elif kind == "const Call&":
            assert default == "{}"
            keywords.append("backend")
        else:
            assert default is None, (name, argument)
            positional.append((RENAMED.get((name, argument), argument), empty))
    return positional, keywords


def signature(function) -> tuple:
    positional, keywords = [], []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            keywords.append(parameter.name)
            assert parameter.default is KEYWORDS.get(parameter.name, None), parameter
        else:
            positional.append((parameter.name, parameter.default))
    return positional, keywords


def test_the_parser_sees_the_headers():
    assert ops("moe.h")["topk_gate"] == [
        ("const TensorView&", "scores", None), ("int", "num_topk", None),
        ("const Call&", "call", "{}")]
    assert len(declarations("quant.h")["per_token_cast"]) == 2
    assert len(ops("quant.h")) == 7
    assert len(ops("config.h")) >= 13


@pytest.mark.parametrize("header,module", [("moe.h", moe), ("quant.h", quant)])
def test_every_op_has_three_forms(header, module):
    found = declarations(header)
    for name in ops(header):
        assert len(found[name]) == len(found[name + "_spec"]) == len(found[name + "_out"])
        assert callable(getattr(module, name))


# Ops whose Python arguments are the reference package's, C++ having structs for some of them.
FUSED = {
    "get_fused_mapping": ["topk_idx", "num_experts", "num_expanded_tokens", "alignment",
                          "force_no_sync"],
    "expand_to_fused": ["x", "token_topk_to_pos", "pos_to_expert"],
    "expand_to_fused_with_sf": ["x", "num_per_channels", "token_topk_to_pos", "pos_to_expert",
                                "use_tma_aligned_col_major_sf"],
    "reduce_fused": ["x", "topk_weights", "token_topk_to_pos", "fp8_format", "sf", "out"],
}


@pytest.mark.parametrize("name", FUSED)
def test_fused(name):
    positional, keywords = signature(getattr(moe, name))
    assert [argument for argument, _ in positional] == FUSED[name]
    assert "backend" in keywords
    tensors = [argument for kind, argument, _ in ops("moe.h")[name] if kind == "const TensorView&"]
    assert tensors and set(tensors) <= set(FUSED[name])


# Their arguments beside the tensors stand in structs.
GATES = ("moe_topk_gate_forward", "moe_topk_gate", "top2_sum_gate")


def test_in_place_ops():
    found = declarations("moe.h")
    for name in ("inplace_unique_group_indices",):
        assert name not in found
        check(name, getattr(moe, name), found[name + "_out"][0])


def plain_ops(header: str) -> list:
    """Those that take tensors and whole numbers only."""
    return [name for name, arguments in ops(header).items()
            if {kind for kind, _, _ in arguments} <= {"const TensorView&", "int", "const Call&"}]


@pytest.mark.parametrize("name", [name for name in plain_ops("moe.h")
                                  if name not in (*FUSED, *GATES)])
def test_moe(name):
    check(name, getattr(moe, name), ops("moe.h")[name])


def fields(header: str, struct: str) -> list:
    text = re.sub(r"//[^\n]*", "", (HEADERS / header).read_text())
    body = re.search(rf"struct {struct} \{{(.*?)\n\}};", text, re.DOTALL).group(1)
    return re.findall(r"(\w+)(?: = [^;]*)?;", body)


@pytest.mark.parametrize("name,options,inputs,python_only,cpp_only", [
    ("moe_topk_gate_forward", "MoeTopkGateOptions", "MoeTopkGateInputs", {"out", "scores"},
     {"save_scores"}),
    ("moe_topk_gate", "MoeTopkGateOptions", "MoeTopkGateInputs", {"out", "scores"},
     {"save_scores"}),
    ("top2_sum_gate", "Top2SumGateOptions", "Top2SumGateInputs", set(), set()),
])
def test_gates(name, options, inputs, python_only, cpp_only):
    arguments = [argument for kind, argument, _ in ops("moe.h")[name]
                 if argument not in ("options", "inputs", "call")]
    expected = {*arguments, *fields("moe.h", options), *fields("moe.h", inputs)} - cpp_only
    got = inspect.signature(getattr(moe, name)).parameters
    assert set(got) == expected | python_only | {"backend"}
    assert len(fields("moe.h", inputs)) == len(fields("moe.h", inputs[:-1] + "Specs"))


def test_backward():
    positional, keywords = signature(moe.moe_topk_gate_backward)
    assert positional == [
        *((argument, inspect.Parameter.empty) for kind, argument, _ in
          ops("moe.h")["moe_topk_gate_backward"] if argument not in ("options", "call")),
        ("scoring_func", "sqrtsoftplus"), ("mask", None), ("grad_scores_sum", None), ("out", None)]
    assert keywords == ["backend"]


# The place of the arguments that Python alone has, and of x_block_size, is the reference package's.
REFERENCE = {
    "per_token_cast": ["x", "fmt", "num_per_channels", "x_block_size", *FLAGS, "stochastic_cast",
                       "out"],
    "per_token_cast_with_sf_only": ["x", "fmt", "num_per_channels", *FLAGS, "out_sf"],
    "per_token_cast_with_precomputed_sf": ["x", "fmt", "num_per_channels", "sf", *FLAGS, "out"],
    "per_block_cast": ["x", "fmt", "block_size", *list(FLAGS)[:3], "out"],
    "per_block_cast_with_sf_only": ["x", "fmt", "block_size", *list(FLAGS)[:3], "out_sf"],
    "per_block_cast_with_precomputed_sf": ["x", "fmt", "block_size", "sf", *list(FLAGS)[:3], "out"],
    "cast_back": ["x", "fmt", "x_block_size", "x_special_fmt"],
    "per_token_cast_back": ["x", "fmt", "num_per_channels", "x_special_fmt"],
}


def check(name: str, function, arguments: list) -> None:
    """Every C++ argument has its Python counterpart, in the same order, with the same default."""
    expected, keywords = expected_arguments(name, arguments)
    got, got_keywords = signature(function)
    if name.endswith("precomputed_sf"):  # the flags are there for the reference package's sake
        flags = [flag for flag in FLAGS if "block" not in name or flag != "use_e4m3_sf"]
        expected += [(flag, False) for flag in flags]
    optional = {"out", "out_sf", "x_block_size", *PYTHON_ONLY.get(name, [])}
    in_order = [(argument, default) for argument, default in got
                if argument in dict(expected) or argument not in optional]
    if name == "cast_back":  # (x, fmt, x_block_size): C++ has the block in x_sf, before the dtype
        in_order.sort(key=lambda pair: [argument for argument, _ in expected].index(pair[0]))
    assert in_order == expected
    assert set(keywords) <= set(got_keywords)
    for argument, default in got:
        if argument in optional and argument not in dict(expected):
            assert default is (False if argument == "stochastic_cast" else None)


@pytest.mark.parametrize("name", ops("quant.h"))
def test_quant(name):
    function = getattr(quant, name)
    check(name, function, ops("quant.h")[name])
    assert [argument for argument, _ in signature(function)[0]] == REFERENCE[name]


def test_names_of_quant():
    assert set(quant.__all__) == set(ops("quant.h")) | {"per_token_cast_back"}
    assert [name for name, _ in signature(quant.per_token_cast_back)[0]] == (
        REFERENCE["per_token_cast_back"])


@pytest.mark.parametrize("name", [*ops("config.h"), "cache_dir", "set_cache_dir", "backends"])
def test_config(name):
    header = {"backends": "device.h", "cache_dir": "cache.h", "set_cache_dir": "cache.h"}
    arguments = declarations(header.get(name, "config.h"))[name][0]
    function = getattr(config, name)
    assert name in config.__all__
    got = [parameter.name for parameter in inspect.signature(function).parameters.values()]
    assert got == [argument for _, argument, _ in arguments]


def public_modules() -> list:
    folder = pathlib.Path(tilekernels.__file__).parent
    names = [path.stem for path in folder.glob("*.py") if not path.name.startswith("_")]
    return [tilekernels, *(importlib.import_module("tilekernels." + name) for name in names)]


def test_modules_show_their_public_names_and_no_others():
    assert {config, moe, quant} < set(public_modules())
    for module in public_modules():
        assert dir(module) == sorted(module.__all__)
        defined = {name for name, value in vars(module).items() if not name.startswith("_")
                   and getattr(value, "__module__", None) == module.__name__}
        assert defined <= set(module.__all__)
        for name in module.__all__:
            assert hasattr(module, name), (module, name)


def test_everything_has_annotations_and_docs():
    for module in (moe, quant, config):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("_") or function.__module__ != module.__name__:
                continue
            assert inspect.getdoc(function), name
            parameters = inspect.signature(function).parameters.values()
            assert all(p.annotation is not inspect.Parameter.empty for p in parameters), name
            assert inspect.signature(function).return_annotation is not inspect.Signature.empty
