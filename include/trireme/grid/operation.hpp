#pragma once

#include <trireme/tensor/views.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::grid {

/// Throws Error with MPI's message if `code` is not MPI_SUCCESS.
void expect_mpi(int code, const char* what, const std::string& communicator);
/// `elements` as MPI's int; throws Error if the number does not fit.
int message_count(std::int64_t elements);

/// One outstanding verb: its messages, and the function to call when they have completed.
struct Operation {
  std::string communicator;  ///< name, for errors
  const char* verb = "";
  std::int64_t number = 0;  ///< collective: its number on the communicator; otherwise the channel
  int peer = -1;            ///< world rank of the other end of a send or receive

  std::vector<MPI_Request> messages;
  /// Called when all messages have completed; may post further messages. Null: nothing follows.
  void (*then)(Operation&) = nullptr;

  /// State of the verb. The part of rank r has the elements offsets[r] … offsets[r + 1] − 1.
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 1;
  int tag = 0;
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sent_offsets;  ///< of the parts in `whole`, if they differ from offsets
  std::vector<int> int_counts, int_offsets;  ///< counts and offsets of the parts, for MPI
  const std::byte* whole = nullptr;          ///< this rank's input, with the parts of all ranks
  std::byte* result = nullptr;               ///< receives this rank's sums
  std::int64_t segment = 0;
  std::int64_t segments = 0;
  std::vector<const std::byte*> parts;  ///< summands in rank order
  StagingBuffer scratch;                ///< received inputs

  /// A result in a host buffer that must be copied to the device.
  struct CopyBack {
    Exec exec;
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  StagingBuffer staged;
  std::optional<CopyBack> copy_back;
};

/// The bytes of an array, without const.
template <class T>
std::byte* raw(T* data) {
  return const_cast<std::byte*>(reinterpret_cast<const std::byte*>(data));
}

/// out[i] = (parts[0][i] + parts[1][i]) + parts[2][i] + …, with the same bits for any n and
/// position i. Two-byte types are summed in float and rounded once. `out` may be one of the parts.
/// T: float, double, Bf16, Fp16.
template <class T>
void sum_in_order(T* out, std::span<const std::byte* const> parts, std::int64_t n);

/// Posts an all-reduce of `n` elements at `data`, in host memory, summed by sum_in_order. `scratch`
/// must have ordered_sum_scratch_bytes(). The operation must be pending (see add_pending) until it
/// completes.
template <class T>
void post_ordered_sum(Operation& operation, T* data, std::int64_t n);
std::int64_t ordered_sum_scratch_bytes(std::int64_t n, std::int64_t size, int ranks);

/// Posts a reduce-scatter of `whole` to `result`; set both and `offsets` before. `scratch` must
/// have reduce_scatter_scratch_bytes() for the `mine` elements of this rank's part. The operation
/// must be pending until it completes.
template <class T>
void post_reduce_scatter(Operation& operation);
std::int64_t reduce_scatter_scratch_bytes(std::int64_t mine, std::int64_t size, int ranks);

/// Posts an all-gather of the parts at `offsets`. This rank's part must be in `all`.
template <class T>
void post_all_gather(Operation& operation, std::byte* all);

/// Posts the sends of the parts of `whole` at `sent_offsets`, and the receives of the other ranks'
/// parts to `result` at `offsets`. Copies this rank's part for itself. T: also std::int64_t.
template <class T>
void post_all_to_all(Operation& operation);

/// MPI's datatype for T. The datatypes for Bf16 and Fp16 do not support reductions.
template <class T>
MPI_Datatype datatype();

/// Advances the operation without waiting. Returns whether it is complete.
bool advance(Operation& operation);

/// Pending operations post more messages when their outstanding messages complete. Other ranks may
/// need these messages, so every wait calls advance_pending(), which also advances all transport
/// queues. Only the thread that calls MPI may use these functions.
void add_pending(Operation& operation);
void remove_pending(Operation& operation);
void advance_pending();

}  // namespace trireme::grid
