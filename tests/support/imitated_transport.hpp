#pragma once

#include <trireme/grid/communicator.hpp>
#include <trireme/grid/transport.hpp>

#include <memory>

namespace trireme::testing {

/// A transport by the rules of one NCCL communicator and its stream, over MPI on hosts, so that
/// violations of NCCL's rules fail here too:
///
/// - the queue is strictly ordered: a group begins, and its receives are posted, only when the
/// previous group has ended;
/// - nothing is buffered: a send ends only after its receive was posted (NCCL's small messages may
/// end earlier, on which no program may rely);
/// - calls return immediately, and the queue advances only while this process waits: data is read
/// and written as late as a stream may do it.
///
/// Requires that MPI can access the memory of Exec: `can_imitate_nccl`.
std::unique_ptr<grid::Transport> imitate_nccl(grid::Communicator& communicator);

/// The same transport, except that waits return immediately as for a stream: results are only
/// available after the queue has passed. For programs that hang and do not read results.
std::unique_ptr<grid::Transport> imitate_stream(grid::Communicator& communicator);

inline constexpr bool can_imitate_nccl =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, Memory>::accessible;

}  // namespace trireme::testing
