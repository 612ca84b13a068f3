#include "schedule/support.hpp"

#include <gtest/gtest.h>

#include <set>

namespace trireme::schedule {
namespace {

TEST(Program, FingerprintsDistinguishPrograms) {
  const Program a = lowered(gpipe, {2, 4});
  Program b = a;
  const auto hash = [](const Program& one) { return fingerprint({&one, 1}); };
  EXPECT_EQ(hash(a), hash(b));
  std::swap(b.ranks[0][1], b.ranks[0][3]);
  EXPECT_NE(hash(a), hash(b));
  std::set<std::uint64_t> all;
  std::size_t programs = 0;
  for (const Case& c : cases(4, 6, 3)) {
    // With one rank, or one micro-batch, the schedules without chunks are the same.
    if (c.layout.ranks == 1 || c.layout.micro_batches == 1) continue;
    for (const bool tied : {false, true})
      for (const Transport transport : transports) {
        const Program program = lowered(c.kind, c.layout, {tied, transport});
        all.insert(hash(program));
        ++programs;
        EXPECT_EQ(program, lowered(c.kind, c.layout, {tied, transport})) << c;
      }
  }
  EXPECT_GT(all.size(), programs * 3 / 4);
}

TEST(Program, TransfersKnowTheirPartners) {
  const ProgramLayout layout{3, 2, 2};
  for (Stage s = 0; s < 5; ++s) {
    const Instr send{Op::send_activation, s, 1};
    EXPECT_EQ(partner_of(send), (Instr{Op::receive_activation, s + 1, 1}));
    EXPECT_EQ(partner_of(partner_of(send)), send);
    EXPECT_EQ(peer_of(send, layout), (s + 1) % 3);
    const Instr receive{Op::receive_gradient, s, 1};
    EXPECT_EQ(partner_of(receive), (Instr{Op::send_gradient, s + 1, 1}));
    EXPECT_EQ(partner_of(partner_of(receive)), receive);
    EXPECT_EQ(peer_of(receive, layout), (s + 1) % 3);
  }
}

TEST(Program, ValuesHaveDenseUniqueIndices) {
  const ProgramLayout layout{2, 3, 2};
  std::set<std::size_t> all;
  for (int kind = 0; kind < Value::kinds; ++kind)
    for (Stage s = 0; s < layout.stages(); ++s)
      for (Micro m = 0; m < layout.micro_batches; ++m)
        all.insert(index_of({static_cast<Value::Kind>(kind), s, m}, layout));
  EXPECT_EQ(all.size(), values(layout));
  EXPECT_EQ(*all.rbegin() + 1, values(layout));
}

TEST(Program, NormNeedsEveryGradientOfTheRank) {
  const auto reads = effects({Op::gradient_norm, 1, 0}, {2, 4, 2, true}).reads;
  const std::vector<Value> expected{
      {Value::Kind::reduced, 1, 0}, {Value::Kind::reduced, 3, 0}, {Value::Kind::tied, 3, 0}};
  EXPECT_EQ(reads, expected);
}

}  // namespace
}  // namespace trireme::schedule
