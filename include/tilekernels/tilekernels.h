// Everything of the public interface.
#pragma once

#include "tilekernels/ascend.h"
#include "tilekernels/cache.h"
#include "tilekernels/checkpoint.h"
#include "tilekernels/config.h"
#include "tilekernels/device.h"
#include "tilekernels/error.h"
#include "tilekernels/moe.h"
#include "tilekernels/quant.h"
#include "tilekernels/stream.h"
#include "tilekernels/tensor.h"
#include "tilekernels/version.h"
