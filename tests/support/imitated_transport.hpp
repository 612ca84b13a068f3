#pragma once

#include <trireme/grid/communicator.hpp>
#include <trireme/grid/transport.hpp>

#include <memory>

namespace trireme::testing {

/// A transport by the rules of one NCCL communicator and its stream, over MPI on hosts, so that
/// what goes wrong there goes wrong here:
///
/// - the queue is strictly in order: a group begins only when the one before it has ended, and a
///   receive is posted no sooner;
/// - nothing is buffered: a send ends only once its receive was posted (NCCL's small messages may
///   end earlier, on which no program may rely);
/// - calls return at once and the queue moves only while this process waits for something: data is
///   read and written as late as a stream may do it.
///
/// Only where MPI reaches the memory of Exec: `can_imitate_nccl`.
std::unique_ptr<grid::Transport> imitate_nccl(grid::Communicator& communicator);

/// The same, whose waits return at once as those of a stream do: results are there only once the
/// queue has passed. For programs that hang, and do not read results.
std::unique_ptr<grid::Transport> imitate_stream(grid::Communicator& communicator);

inline constexpr bool can_imitate_nccl =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, Memory>::accessible;

}  // namespace trireme::testing
