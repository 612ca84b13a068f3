#pragma once

#include <trireme/grid/communicator.hpp>

#include <memory>
#include <vector>

namespace trireme::testing {

/// The ranks of one communicator as objects of one process, without MPI. They provide the members
/// used by transports: rank, size, name, and broadcast of a text, which rank 0 begins.
std::vector<std::unique_ptr<grid::Communicator>> communicators_of(int ranks);

}  // namespace trireme::testing
