#pragma once

#include <mpi.h>

#include <cstdint>

namespace trireme::grid {

/// Count and datatype with which an MPI call sends or receives any number of elements. An MPI count
/// is an int: if `n` exceeds counted_elements(), the block becomes one element of a derived
/// datatype with the same bytes. The object may be destroyed while the message is in flight.
class MessageBlock {
 public:
  MessageBlock(std::int64_t n, MPI_Datatype element);
  ~MessageBlock();
  MessageBlock(const MessageBlock&) = delete;
  MessageBlock& operator=(const MessageBlock&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_;
  MPI_Datatype type_;
  bool made_ = false;
};

/// Largest element count of one MPI call: INT_MAX unless a test has set less.
int counted_elements();

/// Sets counted_elements() for the process and returns the previous value.
int set_counted_elements(int most);

}  // namespace trireme::grid
