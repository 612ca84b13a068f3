#pragma once

#include <trireme/base/types.hpp>

namespace trireme {

/// Peak resident memory of this process so far: its pages in host memory, including those of files
/// and shared ones. 0 where the system does not report it.
Bytes peak_resident_bytes();

}  // namespace trireme
