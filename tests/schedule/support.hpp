#pragma once

#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/validate.hpp>

#include <ostream>
#include <string>
#include <vector>

namespace trireme::schedule {

constexpr auto gpipe = ScheduleKind::gpipe;
constexpr auto one_f_one_b = ScheduleKind::one_forward_one_backward;
constexpr auto interleaved = ScheduleKind::interleaved;
constexpr auto zb_h1 = ScheduleKind::zb_h1;
constexpr ScheduleKind in_a_v[] = {ScheduleKind::zb_v, ScheduleKind::v_half, ScheduleKind::v_min,
                                   ScheduleKind::dualpipe_v};
constexpr Transport transports[] = {Transport::independent_channels, Transport::ordered_groups};

/// A layout with stages in a V.
inline ProgramLayout v_layout(int ranks, int micro_batches, int chunks = 2) {
  ProgramLayout layout{ranks, micro_batches, chunks};
  layout.placement = StagePlacement::v;
  return layout;
}

inline Program lowered(Program program, const LowerOptions& options = {}) {
  lower(program, options);
  return program;
}
inline Program lowered(ScheduleKind kind, const ProgramLayout& layout,
                       const LowerOptions& options = {}) {
  return lowered(generate(kind, layout), options);
}

struct Case {
  ScheduleKind kind;
  ProgramLayout layout;
};
inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << name_of(c.kind) << " p=" << c.layout.ranks << " m=" << c.layout.micro_batches
             << " v=" << c.layout.chunks;
}

/// Every schedule for p = 1 … ranks, m = 1 … micro_batches, and v = 2 … chunks if it has chunks.
inline std::vector<Case> cases(int ranks, int micro_batches, int chunks) {
  std::vector<Case> all;
  for (int p = 1; p <= ranks; ++p)
    for (int m = 1; m <= micro_batches; ++m) {
      for (const auto kind : {gpipe, one_f_one_b, zb_h1}) all.push_back({kind, {p, m}});
      for (int v = 2; v <= chunks; ++v) all.push_back({interleaved, {p, m, v}});
      for (const auto kind : in_a_v) all.push_back({kind, v_layout(p, m)});
    }
  return all;
}

}  // namespace trireme::schedule
