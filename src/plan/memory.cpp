#include <trireme/architecture/placement.hpp>
#include <trireme/base/text.hpp>
#include <trireme/plan/memory.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

constexpr Bytes line = 64;  // alignment of arrays in an arena
Bytes up(Bytes bytes) {
  return (bytes + line - 1) / line * line;
}

/// The numbers that every part below needs.
struct Sizes {
  const deck::ModelConfig& model;
  Bytes element;
  Bytes accumulate;
  std::int64_t tokens;
  std::int64_t micro;

  Bytes matrix(std::int64_t columns) const { return up(tokens * columns * element); }
  Bytes norm_statistics() const { return 2 * up(tokens * accumulate); }
};

Bytes saved_per_slot(const Sizes& s) {
  const std::int64_t D = s.model.hidden;
  const std::int64_t F = s.model.feed_forward;
  const Bytes layer = 5 * s.matrix(D) + s.matrix(3 * D) + 2 * s.matrix(F) +
                      up(s.micro * s.model.heads * s.model.sequence * s.accumulate) +
                      2 * s.norm_statistics();
  const Bytes tokens_and_targets = 2 * up(s.tokens * 4);
  const Bytes head = 2 * s.matrix(D) + s.norm_statistics();
  return tokens_and_targets + s.model.layers * layer + head;
}

Bytes scratch(const Sizes& s) {
  const std::int64_t D = s.model.hidden;
  const std::int64_t block = architecture::logit_block_rows(s.tokens, s.model.vocabulary);
  const Bytes head = up(block * s.model.vocabulary * s.element) + up(block * 8);
  const Bytes attention =
      s.matrix(D) + up(s.micro * s.model.heads * s.model.sequence * s.accumulate);
  const Bytes work = 4 * s.matrix(D) + s.matrix(s.model.feed_forward) + s.matrix(3 * D);
  return line + head + attention + s.matrix(D) + work;
}

}  // namespace

std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture, int slots) {
  const Bytes element = size_of(config.precision.compute);
  const Sizes sizes{config.model, element, element == 8 ? 8 : 4,
                    config.batch.micro * config.model.sequence, config.batch.micro};
  const architecture::Placement placement = architecture::place(architecture);
  return {{"weights", placement.elements * element},
          {"gradients", placement.gradient_elements * sizes.accumulate},
          {"optimizer state", 2 * up(placement.elements * sizes.accumulate)},
          {"saved activations", slots * saved_per_slot(sizes)},
          {"scratch", scratch(sizes)}};
}

Bytes total(const std::vector<MemoryRow>& rows) {
  Bytes sum = 0;
  for (const MemoryRow& row : rows) sum += row.bytes;
  return sum;
}

std::string table(const std::vector<MemoryRow>& rows) {
  std::string out;
  const auto add = [&out](const std::string& what, Bytes bytes) {
    const std::string amount = human_bytes(bytes);
    out += "  " + what + std::string(what.size() < 20 ? 20 - what.size() : 1, ' ');
    out += std::string(amount.size() < 10 ? 10 - amount.size() : 0, ' ') + amount + "\n";
  };
  for (const MemoryRow& row : rows) add(row.what, row.bytes);
  add("sum", total(rows));
  out.pop_back();
  return out;
}

}  // namespace trireme::plan
