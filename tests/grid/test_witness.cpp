#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/arena.hpp>

#include "support/device_access.hpp"
#include "support/imitated_transport.hpp"
#include "support/runtime.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::grid {
namespace {

using trireme::testing::runtime;
using trireme::testing::set_values;
using trireme::testing::values_of;

/// Notes each message with its sum when it is shown.
class Notes final : public Witness {
 public:
  void gives(const Message& message) override { note("gives ", message); }
  void receives(const Message& message) override { note("receives ", message); }
  std::vector<std::string> lines;

 private:
  void note(const char* what, const Message& message) {
    EXPECT_EQ(message.size, 8);
    EXPECT_EQ(message.communicator, "test");
    const View1<double> numbers(reinterpret_cast<double*>(const_cast<std::byte*>(message.data)),
                                static_cast<std::size_t>(message.elements));
    double sum = 0;
    for (const double number : values_of(numbers)) sum += number;
    lines.push_back(text(what, message.verb, " ", sum));
  }
};

class Witnesses : public ::testing::TestWithParam<bool> {};

TEST_P(Witnesses, SeeInputsAndResultsOfEachVerb) {
  if (GetParam() && !trireme::testing::can_imitate_nccl) GTEST_SKIP() << "moves hosts' memory";
  const auto world = runtime().world().split(0, runtime().rank(), "test");
  const int n = world->size();
  if (GetParam() && n > 1) world->use(trireme::testing::imitate_nccl(*world));
  Notes notes;
  world->show_to(&notes);
  Arena arena("test", 4096);
  const auto x = arena.take<double>(2);
  const auto all = arena.take<double>(n);
  const View1<double> mine(all.data() + world->rank(), 1);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(n), 1);
  set_values(x, std::vector<double>{1, 2});
  set_values(mine, std::vector<double>{5});
  std::vector<std::string> expected;
  const auto expect = [&](const std::string& verb, double given, double received) {
    if (n == 1) return;  // nothing is sent
    expected.push_back(text("gives ", verb, " ", given));
    expected.push_back(text("receives ", verb, " ", received));
  };
  world->all_reduce(Exec(), x, Reduction::sum, "test");
  expect("all_reduce", 3, 3 * n);
  world->all_gather(Exec(), all, mine, counts, "test");
  expect("all_gather", 5, 5 * n);
  world->reduce_scatter(Exec(), mine, all, counts, "test");
  expect("reduce_scatter", 5 * n, 5 * n);
  const auto others = arena.take<double>(n);
  world->all_to_all<double>(Exec(), others, counts, all, counts, "test");
  expect("all_to_all", 5 * (2 * n - 1), 5 * (2 * n - 1));
  world->broadcast(Exec(), x, 0, "not shown");
  if (n > 1) {
    const View1<double> one(x.data(), 1);
    world->begin_group();
    Request in = world->start_receive(Exec(), one, (world->rank() + n - 1) % n, 0);
    Request out = world->start_send(Exec(), mine, (world->rank() + 1) % n, 0);
    world->end_group(Exec());
    world->wait(out, "test");
    world->wait(in, "test");
    expected.push_back(text("gives send ", 5.0 * n));
    expected.push_back(text("receives receive ", 5.0 * n));
  }
  EXPECT_EQ(notes.lines, expected);
  world->show_to(nullptr);
  world->all_reduce(Exec(), x, Reduction::sum, "test");
  EXPECT_EQ(notes.lines, expected);
}

INSTANTIATE_TEST_SUITE_P(OnEitherTransport, Witnesses, ::testing::Bool());

}  // namespace
}  // namespace trireme::grid
