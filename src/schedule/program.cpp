#include <trireme/base/check.hpp>
#include <trireme/schedule/program.hpp>

#include <algorithm>
#include <ostream>
#include <set>

namespace trireme::schedule {

std::string to_string(const Instr& instr) {
  const std::string stage = text(" stage ", instr.stage);
  const std::string micro = text(" micro ", instr.micro);
  switch (instr.op) {
    case Op::forward:
      return "forward" + stage + micro;
    case Op::backward:
      return "backward" + stage + micro;
    case Op::backward_input:
      return "backward_input" + stage + micro;
    case Op::backward_weight:
      return "backward_weight" + stage + micro;
    case Op::reduce_gradients:
      return "reduce_gradients" + stage;
    case Op::optimizer_step:
      return "optimizer_step" + stage;
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, const Instr& instr) {
  return out << to_string(instr);
}

namespace {

using Kind = Value::Kind;

void read_output_gradient(Effects& e, Stage s, Micro m, const ProgramLayout& layout) {
  if (s + 1 < layout.stages()) e.reads.push_back({Kind::input_gradient, s + 1, m});
}

void write_input_gradient(Effects& e, Stage s, Micro m) {
  if (s > 0) e.writes.push_back({Kind::input_gradient, s, m});
}

void chain_weight_gradient(Effects& e, Stage s, Micro m) {
  if (m > 0) e.reads.push_back({Kind::weight_gradient, s, m - 1});
  e.writes.push_back({Kind::weight_gradient, s, m});
}

}  // namespace

Effects effects(const Instr& instr, const ProgramLayout& layout) {
  const Stage s = instr.stage;
  const Micro m = instr.micro;
  Effects e;
  switch (instr.op) {
    case Op::forward:
      if (s > 0) e.reads.push_back({Kind::activation, s - 1, m});
      e.writes = {{Kind::activation, s, m}, {Kind::saved, s, m}};
      break;
    case Op::backward:
      e.reads = {{Kind::saved, s, m}};
      read_output_gradient(e, s, m, layout);
      write_input_gradient(e, s, m);
      chain_weight_gradient(e, s, m);
      e.frees = {{Kind::saved, s, m}};
      break;
    case Op::backward_input:
      e.reads = {{Kind::saved, s, m}};
      read_output_gradient(e, s, m, layout);
      write_input_gradient(e, s, m);
      e.writes.push_back({Kind::weight_work, s, m});
      break;
    case Op::backward_weight:
      e.reads = {{Kind::saved, s, m}, {Kind::weight_work, s, m}};
      chain_weight_gradient(e, s, m);
      e.frees = {{Kind::saved, s, m}, {Kind::weight_work, s, m}};
      break;
    case Op::reduce_gradients:
      e.reads = {{Kind::weight_gradient, s, layout.micro_batches - 1}};
      e.writes = {{Kind::reduced, s, 0}};
      break;
    case Op::optimizer_step:
      e.reads = {{Kind::reduced, s, 0}};
      e.writes = {{Kind::weights, s, 0}};
      break;
  }
  return e;
}

Program generate(ScheduleKind kind, const ProgramLayout& layout) {
  check(layout.ranks >= 1 && layout.micro_batches >= 1, "a schedule of ", layout.ranks,
        " ranks and ", layout.micro_batches, " micro-batches");
  Program program{layout, std::vector<std::vector<Instr>>(static_cast<std::size_t>(layout.ranks))};
  const int m = layout.micro_batches;
  for (Rank r = 0; r < layout.ranks; ++r) {
    auto& row = program.ranks[static_cast<std::size_t>(r)];
    row.reserve(static_cast<std::size_t>(2 * m + 2));
    // GPipe is 1F1B whose warm-up holds every micro-batch; 1F1B's lasts until the first backward
    // can arrive.
    const int warmup = kind == ScheduleKind::gpipe ? m : std::min(m, layout.ranks - 1 - r);
    for (Micro i = 0; i < warmup; ++i) row.push_back({Op::forward, r, i});
    for (Micro i = warmup; i < m; ++i) {
      row.push_back({Op::forward, r, i});
      row.push_back({Op::backward, r, i - warmup});
    }
    for (Micro i = m - warmup; i < m; ++i) row.push_back({Op::backward, r, i});
  }
  return program;
}

void lower(Program& program) {
  for (Stage s = 0; s < program.layout.stages(); ++s) {
    auto& row = program.ranks[static_cast<std::size_t>(program.layout.rank_of(s))];
    row.push_back({Op::reduce_gradients, s, 0});
    row.push_back({Op::optimizer_step, s, 0});
  }
}

int slots_needed(const Program& program, Rank rank) {
  int live = 0;
  int most = 0;
  for (const Instr& instr : program.ranks[static_cast<std::size_t>(rank)]) {
    const Effects e = effects(instr, program.layout);
    const auto saved = [](const Value& v) { return v.kind == Kind::saved; };
    live += static_cast<int>(std::count_if(e.writes.begin(), e.writes.end(), saved));
    most = std::max(most, live);
    live -= static_cast<int>(std::count_if(e.frees.begin(), e.frees.end(), saved));
  }
  return most;
}

std::uint64_t fingerprint(const Program& program) {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  const auto mix = [&hash](std::int64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash ^= static_cast<std::uint64_t>(value >> (8 * byte)) & 0xff;
      hash *= 1099511628211ull;
    }
  };
  mix(program.layout.ranks);
  mix(program.layout.micro_batches);
  for (const auto& row : program.ranks) {
    mix(static_cast<std::int64_t>(row.size()));
    for (const Instr& i : row) {
      mix(static_cast<std::int64_t>(i.op));
      mix(i.stage);
      mix(i.micro);
    }
  }
  return hash;
}

}  // namespace trireme::schedule
