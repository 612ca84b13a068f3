#include <trireme/tensor/kernel_arguments.hpp>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(KernelArguments, HaveTheirValuesInAKernel) {
  check_kernel_arguments(Exec());
}

}  // namespace
}  // namespace trireme
