// Registers the ops of tilekernels/quant.h.
#include "tilekernels/quant.h"

#include "call.h"

namespace tilekernels::python {
namespace {

// Python says the format of the scaling factors by four flags.
CastOptions cast_options(PyCall& call) {
  const bool col_major = call.flag();
  const bool round_sf = call.flag();
  const bool packed = call.flag();
  const bool e4m3 = call.flag();
  const std::optional<std::string> pitch = call.maybe_text();
  const std::optional<double> amax_clamp = call.maybe_number();
  if (packed && !round_sf) {
    call.refuse("use_packed_ue8m0", "must come with round_sf=True", "round_sf=False");
  }
  if (e4m3 && round_sf) {
    call.refuse("use_e4m3_sf", "must come with round_sf=False", "round_sf=True");
  }
  CastOptions options;
  options.sf.kind = e4m3       ? SfKind::kE4M3
                    : packed   ? SfKind::kUE8M0
                    : round_sf ? SfKind::kRoundedF32
                               : SfKind::kF32;
  options.sf.layout = packed ? (col_major ? SfLayout::kColPacked : SfLayout::kRowPacked)
                             : (col_major ? SfLayout::kCol : SfLayout::kRow);
  if (pitch == "cuda") {
    options.sf.pitch = SfPitch::kCuda;
  } else if (pitch == "ascend") {
    options.sf.pitch = SfPitch::kAscend;
  } else if (pitch) {
    call.refuse("sf_pitch", "must be None, 'cuda' or 'ascend'", *pitch);
  }
  if (amax_clamp) options.amax_clamp = static_cast<float>(*amax_clamp);
  return options;
}

// Given scaling factors are row-major f32, or e4m3 where use_e4m3_sf says so.
void check_given_sf(PyCall& call, const TensorSpec& sf) {
  if (call.flag()) call.refuse("use_tma_aligned_col_major_sf", "must be False with sf", "True");
  call.flag();  // round_sf: the codes depend on the scaling factors alone
  if (call.flag()) call.refuse("use_packed_ue8m0", "must be False with sf", "True");
  const bool e4m3 = call.flag();
  if (e4m3 != (sf.dtype == DType::kE4M3)) {
    call.refuse("use_e4m3_sf", "must be True for e4m3 sf and False for any other",
                e4m3 ? "True" : "False");
  }
}

BlockSize block_size(PyCall& call, const char* argument) {
  BlockSize block;
  block.rows = call.integer(argument);
  block.cols = call.integer(argument);
  return block;
}

// Block, and the layout by name; without one it is read off the strides and the dtype.
SfSource sf_source(PyCall& call, const TensorSpec& sf) {
  SfSource source;
  source.block = block_size(call, "x_block_size");
  const std::optional<std::string> layout = call.maybe_text();
  if (!layout) {
    const bool packed = sf.dtype == DType::kI32 || sf.dtype == DType::kI16;
    const bool col_major = sf.rank() == 2 && sf.stride(0) == 1 && sf.stride(1) != 1;
    if (packed && source.block.cols == 1) {
      source.layout = SfLayout::kTokenPacked;
    } else if (packed) {
      source.layout = col_major ? SfLayout::kColPacked : SfLayout::kRowPacked;
    } else {
      source.layout = col_major ? SfLayout::kCol : SfLayout::kRow;
    }
  } else if (*layout == "row") {
    source.layout = SfLayout::kRow;
  } else if (*layout == "col") {
    source.layout = SfLayout::kCol;
  } else if (*layout == "row_packed") {
    source.layout = SfLayout::kRowPacked;
  } else if (*layout == "col_packed") {
    source.layout = SfLayout::kColPacked;
  } else if (*layout == "token_packed") {
    source.layout = SfLayout::kTokenPacked;
  } else {
    call.refuse("x_sf_layout",
                "must be None, 'row', 'col', 'row_packed', 'col_packed' or 'token_packed'",
                *layout);
  }
  return source;
}

QuantSpec quant_spec(PyCall& call) {
  QuantSpec quant;
  quant.data = call.spec();
  quant.sf = call.spec();
  return quant;
}

QuantView quant_tensor(PyCall& call) {
  QuantView quant;
  quant.data = call.tensor();
  quant.sf = call.tensor();
  return quant;
}

void give(PyCall& call, const QuantSpec& out) { call.give({out.data, out.sf}); }

// What the two casts do not share: their names, how Python says the size of a group, and the public
// functions.
struct PerToken {
  static constexpr const char* kCast = "per_token_cast";
  static constexpr const char* kQuantized = "per_token_cast_quantized";
  static constexpr const char* kSfOnly = "per_token_cast_with_sf_only";
  static constexpr const char* kPrecomputed = "per_token_cast_with_precomputed_sf";
  static int size(PyCall& call) { return call.integer("num_per_channels"); }
  static auto spec(const auto&... arguments) { return per_token_cast_spec(arguments...); }
  static void out(const auto&... arguments) { per_token_cast_out(arguments...); }
  static auto sf_only_spec(const auto&... arguments) {
    return per_token_cast_with_sf_only_spec(arguments...);
  }
  static void sf_only_out(const auto&... arguments) {
    per_token_cast_with_sf_only_out(arguments...);
  }
  static auto precomputed_spec(const auto&... arguments) {
    return per_token_cast_with_precomputed_sf_spec(arguments...);
  }
  static void precomputed_out(const auto&... arguments) {
    per_token_cast_with_precomputed_sf_out(arguments...);
  }
};

struct PerBlock {
  static constexpr const char* kCast = "per_block_cast";
  static constexpr const char* kQuantized = "per_block_cast_quantized";
  static constexpr const char* kSfOnly = "per_block_cast_with_sf_only";
  static constexpr const char* kPrecomputed = "per_block_cast_with_precomputed_sf";
  static BlockSize size(PyCall& call) { return block_size(call, "block_size"); }
  static auto spec(const auto&... arguments) { return per_block_cast_spec(arguments...); }
  static void out(const auto&... arguments) { per_block_cast_out(arguments...); }
  static auto sf_only_spec(const auto&... arguments) {
    return per_block_cast_with_sf_only_spec(arguments...);
  }
  static void sf_only_out(const auto&... arguments) {
    per_block_cast_with_sf_only_out(arguments...);
  }
  static auto precomputed_spec(const auto&... arguments) {
    return per_block_cast_with_precomputed_sf_spec(arguments...);
  }
  static void precomputed_out(const auto&... arguments) {
    per_block_cast_with_precomputed_sf_out(arguments...);
  }
};

template <class Cast>
struct CastRegistrations {
  OpRegistration plain{Cast::kCast, Cast::kCast,
                       [](PyCall& call) {
                         const TensorSpec x = call.spec();
                         const DType fmt = call.dtype();
                         const auto size = Cast::size(call);
                         give(call, Cast::spec(x, fmt, size, cast_options(call)));
                       },
                       [](PyCall& call) {
                         const QuantView out = quant_tensor(call);
                         const TensorView x = call.tensor();
                         const DType fmt = call.dtype();
                         const auto size = Cast::size(call);
                         const CastOptions options = cast_options(call);
                         Cast::out(out, x, fmt, size, options, call.options(x.device));
                       }};
  OpRegistration quantized{Cast::kQuantized, Cast::kCast,
                           [](PyCall& call) {
                             const QuantSpec x = quant_spec(call);
                             const SfSource x_sf = sf_source(call, x.sf);
                             const DType fmt = call.dtype();
                             const auto size = Cast::size(call);
                             give(call, Cast::spec(x, x_sf, fmt, size, cast_options(call)));
                           },
                           [](PyCall& call) {
                             const QuantView out = quant_tensor(call);
                             const QuantView x = quant_tensor(call);
                             const SfSource x_sf = sf_source(call, x.sf);
                             const DType fmt = call.dtype();
                             const auto size = Cast::size(call);
                             const CastOptions options = cast_options(call);
                             Cast::out(out, x, x_sf, fmt, size, options,
                                       call.options(x.data.device));
                           }};
  OpRegistration sf_only{Cast::kSfOnly, Cast::kSfOnly,
                         [](PyCall& call) {
                           const TensorSpec x = call.spec();
                           const DType fmt = call.dtype();
                           const auto size = Cast::size(call);
                           call.give({Cast::sf_only_spec(x, fmt, size, cast_options(call))});
                         },
                         [](PyCall& call) {
                           const TensorView out_sf = call.tensor();
                           const TensorView x = call.tensor();
                           const DType fmt = call.dtype();
                           const auto size = Cast::size(call);
                           const CastOptions options = cast_options(call);
                           Cast::sf_only_out(out_sf, x, fmt, size, options, call.options(x.device));
                         }};
  OpRegistration precomputed{Cast::kPrecomputed, Cast::kPrecomputed,
                             [](PyCall& call) {
                               const TensorSpec x = call.spec();
                               const TensorSpec sf = call.spec();
                               const DType fmt = call.dtype();
                               const auto size = Cast::size(call);
                               check_given_sf(call, sf);
                               call.give({Cast::precomputed_spec(x, fmt, size, sf)});
                             },
                             [](PyCall& call) {
                               const TensorView out = call.tensor();
                               const TensorView x = call.tensor();
                               const TensorView sf = call.tensor();
                               const DType fmt = call.dtype();
                               const auto size = Cast::size(call);
                               check_given_sf(call, sf);
                               Cast::precomputed_out(out, x, fmt, size, sf, call.options(x.device));
                             }};
};

const CastRegistrations<PerToken> kPerToken;
const CastRegistrations<PerBlock> kPerBlock;

const OpRegistration kCastBack(
    "cast_back", "cast_back",
    [](PyCall& call) {
      const QuantSpec x = quant_spec(call);
      const SfSource x_sf = sf_source(call, x.sf);
      call.give({cast_back_spec(x, x_sf, call.dtype())});
    },
    [](PyCall& call) {
      const TensorView out = call.tensor();
      const QuantView x = quant_tensor(call);
      const SfSource x_sf = sf_source(call, x.sf);
      call.dtype();  // the output's own
      cast_back_out(out, x, x_sf, call.options(x.data.device));
    });

}  // namespace
}  // namespace tilekernels::python
