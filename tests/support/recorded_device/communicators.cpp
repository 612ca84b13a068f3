#include "support/recorded_device/communicators.hpp"

#include <trireme/grid/runtime.hpp>

namespace trireme::grid {
namespace {

struct Making {
  int rank = 0;
  int size = 1;
};
Making making;

}  // namespace

Communicator::Communicator(MPI_Comm communicator, std::string name)
    : communicator_(communicator), name_(std::move(name)), rank_(making.rank), size_(making.size) {}
OperationPool::~OperationPool() = default;  // it has no operations
Communicator::~Communicator() = default;

std::string Communicator::broadcast(const std::string& value, int root, const char*) {
  static std::string said;
  if (rank_ == root) said = value;
  return said;
}

void together(Communicator&, const std::function<void()>& local) {
  local();
}

}  // namespace trireme::grid

namespace trireme::testing {

std::vector<std::unique_ptr<grid::Communicator>> communicators_of(int ranks) {
  std::vector<std::unique_ptr<grid::Communicator>> all;
  for (int r = 0; r < ranks; ++r) {
    grid::making = {r, ranks};
    all.push_back(std::make_unique<grid::Communicator>(MPI_COMM_NULL, "test"));
  }
  return all;
}

}  // namespace trireme::testing
