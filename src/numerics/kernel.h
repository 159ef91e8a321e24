// The one form of every backend's kernel. Device-safe: op.h files include it.
#pragma once

namespace tilekernels {

struct Launch;

/// A kernel computes from run-time arguments under a shape of compile-time constants. It trusts
/// both: the front has checked them.
template <class Args, class Shape>
using Kernel = void(const Args& args, const Shape& shape, const Launch& launch);

}  // namespace tilekernels
