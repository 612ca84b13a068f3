#pragma once

#include <trireme/grid/runtime.hpp>

namespace trireme::testing {

/// The process's runtime, created by mpi_main.cpp.
grid::Runtime& runtime();

}  // namespace trireme::testing
