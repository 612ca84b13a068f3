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

/// Throws Error with MPI's message where `code` is not success.
void expect_mpi(int code, const char* what, const std::string& communicator);
/// `elements` as the int in which MPI counts, an error where they are more: for verbs on what the
/// host alone has, which is never long. See MessageBlock.
int message_count(std::int64_t elements);

/// One verb under way: the messages that it waits for and what follows when they are there.
/// Communicators keep theirs and use them again, so that a second step allocates nothing.
struct Operation {
  std::string communicator;  ///< Its name, for errors.
  const char* verb = "";
  std::int64_t number =
      0;          ///< Collectives: how many came before on the communicator. Else the channel.
  int peer = -1;  ///< World rank at the other end of a send or receive.

  std::vector<MPI_Request> messages;
  /// Called when all messages are there; may post further ones. Null: nothing follows.
  void (*then)(Operation&) = nullptr;

  /// What `then` works on. The parts of all ranks begin at offsets[0 … ranks] elements.
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 1;
  int tag = 0;
  std::vector<std::int64_t> offsets;
  std::vector<int> int_counts, int_offsets;  ///< As MPI wants them.
  const std::byte* whole = nullptr;          ///< This rank's input of the whole length.
  std::byte* result = nullptr;               ///< The sum of this rank's part.
  std::int64_t segment = 0;
  std::int64_t segments = 0;
  std::vector<const std::byte*> parts;  ///< Summands in rank order.
  StagingBuffer scratch;                ///< Parts from other ranks.

  /// A result that arrives in a buffer on the host and belongs on the device.
  struct CopyBack {
    Exec exec;
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  StagingBuffer staged;
  std::optional<CopyBack> copy_back;
};

/// out[i] = (parts[0][i] + parts[1][i]) + parts[2][i] + …: the same bits whatever n and wherever i;
/// two-byte numbers are added in float and rounded once. `out` may be one of the parts. T: float,
/// double, Bf16, Fp16.
template <class T>
void sum_in_order(T* out, std::span<const std::byte* const> parts, std::int64_t n);

/// Posts an all-reduce of `n` elements at `data`, on the host, whose sums are those of
/// sum_in_order: little data are gathered by all and summed by all; else every rank gets its part
/// from all, sums it and sends the sum to all, which moves 2 (ranks - 1) / ranks of the data.
/// `scratch` holds the bytes of the function below. The operation must be pending (see below) until
/// it is complete.
template <class T>
void post_ordered_sum(Operation& operation, T* data, std::int64_t n);
std::int64_t ordered_sum_scratch_bytes(std::int64_t n, std::int64_t size, int ranks);

/// Posts a reduce-scatter of `whole` to `result`, its `offsets` set before; pending likewise. The
/// same scratch bytes for this rank's `mine` elements.
template <class T>
void post_reduce_scatter(Operation& operation);
std::int64_t reduce_scatter_scratch_bytes(std::int64_t mine, std::int64_t size, int ranks);

/// Posts an all-gather of the parts at `offsets`; this rank's is already in its place.
template <class T>
void post_all_gather(Operation& operation, std::byte* all);

/// MPI's name of T: float, double, std::int64_t; of Bf16 and Fp16 one that only moves them.
template <class T>
MPI_Datatype datatype();

/// Tests the messages and does what follows; true when the operation is complete.
bool advance(Operation& operation);

/// Operations that have more messages to post when those under way arrive: other ranks wait for
/// these, whatever this rank waits for itself, so all waiting advances all of them. For MPI's
/// thread.
void add_pending(Operation& operation);
void remove_pending(Operation& operation);
void advance_pending();

}  // namespace trireme::grid
