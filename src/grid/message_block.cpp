#include <trireme/grid/message_block.hpp>

#include <trireme/base/check.hpp>

#include <climits>
#include <utility>

namespace trireme::grid {
namespace {

int counted = INT_MAX;

void expect(int code) {
  check(code == MPI_SUCCESS, "MPI cannot create a datatype for a long message: error ", code);
}

}  // namespace

int counted_elements() {
  return counted;
}

int set_counted_elements(int most) {
  return std::exchange(counted, most);
}

/// The derived datatype has blocks of `counted` elements, followed by the remaining elements.
MessageBlock::MessageBlock(std::int64_t n, MPI_Datatype element)
    : count_(n <= counted ? static_cast<int>(n) : 1), type_(element) {
  if (n <= counted) return;
  check(n / counted <= INT_MAX, "a message of ", n, " elements is too long for MPI");
  MPI_Aint least = 0;
  MPI_Aint extent = 0;
  expect(MPI_Type_get_extent(element, &least, &extent));
  MPI_Datatype block = MPI_DATATYPE_NULL;
  expect(MPI_Type_contiguous(counted, element, &block));
  const int lengths[] = {static_cast<int>(n / counted), static_cast<int>(n % counted)};
  const MPI_Aint places[] = {0, extent * (n - n % counted)};
  const MPI_Datatype types[] = {block, element};
  expect(MPI_Type_create_struct(2, lengths, places, types, &type_));
  expect(MPI_Type_free(&block));
  expect(MPI_Type_commit(&type_));
  made_ = true;
}

MessageBlock::~MessageBlock() {
  if (made_) MPI_Type_free(&type_);
}

}  // namespace trireme::grid
