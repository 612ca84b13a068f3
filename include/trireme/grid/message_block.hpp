#pragma once

#include <mpi.h>

#include <cstdint>

namespace trireme::grid {

/// `n` elements, however many, in the int with which MPI counts. More elements than MPI counts
/// become one element of a derived type, whose bytes are sent as before. Pass `count` of `type` to
/// a send or receive; MPI keeps the type as long as it needs it.
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

/// The largest number of elements that are counted, INT_MAX unless a test has set fewer.
int counted_elements();

/// Sets it for the process and returns the previous value.
int set_counted_elements(int most);

}  // namespace trireme::grid
