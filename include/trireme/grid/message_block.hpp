#pragma once

#include <mpi.h>

#include <cstdint>

namespace trireme::grid {

/// `n` elements, as many as there may be, in the int with which MPI counts: those that it cannot
/// count are one element of a type made of them, whose bytes move as before. To be given to a call
/// that sends or receives, `count` of `type`; MPI keeps the type for as long as it needs it.
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

/// The most elements that are counted, INT_MAX unless a test has set fewer.
int counted_elements();

/// Returns the former number. Of the process.
int set_counted_elements(int most);

}  // namespace trireme::grid
