// The library's version.
#include "tilekernels/version.h"

#define TILEKERNELS_TEXT_(x) #x
#define TILEKERNELS_TEXT(x) TILEKERNELS_TEXT_(x)

namespace tilekernels {

const char* version() {
  return TILEKERNELS_TEXT(TILEKERNELS_VERSION_MAJOR) "." TILEKERNELS_TEXT(
      TILEKERNELS_VERSION_MINOR) "." TILEKERNELS_TEXT(TILEKERNELS_VERSION_PATCH);
}

}  // namespace tilekernels
