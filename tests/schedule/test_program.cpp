#include "schedule/support.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace trireme::schedule {
namespace {

TEST(Program, EveryGeneratedProgramIsValidUnderBothTransports) {
  int combinations = 0;
  for (const Case& c : cases(8, 12, 4))
    for (const bool tied : {false, true}) {
      ++combinations;
      for (const Transport transport : transports) {
        const Program program = lowered(c.kind, c.layout, {tied, transport});
        EXPECT_EQ(validate(program, transport), std::vector<std::string>{})
            << c << " " << name_of(transport);
      }
    }
  EXPECT_GE(combinations, 1000);
}

TEST(Program, EveryEvaluationIsValidUnderBothTransports) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 9; ++m)
      for (int v = 1; v <= 3; ++v)
        for (const Transport transport : transports) {
          const Program program = lowered(generate_evaluation({p, m, v}), {true, transport});
          EXPECT_EQ(validate(program, transport), std::vector<std::string>{})
              << p << " " << m << " " << v << name_of(transport);
          EXPECT_EQ(slots_needed(program, 0), 0);
        }
}

TEST(Program, Speed) {
  for (const Transport transport : transports) {
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const auto ms = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
    const auto t0 = now();
    Program program = generate(interleaved, {64, 512, 4});
    const auto t1 = now();
    lower(program, {true, transport});
    const auto t2 = now();
    EXPECT_EQ(validate(program, transport), std::vector<std::string>{});
    const auto t3 = now();
    const Played played = play(program, unit_cost, {transport});
    const auto t4 = now();
    std::cout << name_of(transport) << " generate " << ms(t1 - t0) << " lower " << ms(t2 - t1)
              << " validate " << ms(t3 - t2) << " play " << ms(t4 - t3) << " buffers "
              << played.send_buffers << " idle " << played.timeline.idle_share() << "\n";
  }
}

}  // namespace
}  // namespace trireme::schedule
