#pragma once

#include <trireme/base/types.hpp>

namespace trireme {

/// The most memory that this process has had resident so far: its pages in host memory, those of
/// files and shared ones included. 0 where the system does not tell.
Bytes peak_resident_bytes();

}  // namespace trireme
