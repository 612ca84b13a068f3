#pragma once

#include <mpi.h>

#include <cstdint>

namespace trireme::grid {

/// `n` elements, however many, as an MPI count, which is an int. A block beyond the limit becomes
/// one element of a derived type with the same bytes. Pass `count` of `type` to a send or receive;
/// MPI keeps the type as long as it needs it.
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
